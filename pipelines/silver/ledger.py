"""What an idle collection costs: nothing.

Each silver table carries its own progress and is believed before anything else. A table without news is not touched, so its progress
falls behind; the ledger says of such a table "no row of it in bronze versions (own, through]". It is trusted only while the table's own
progress is not below *own*: a table that was dropped or restored begins anew. Losing the ledger costs one longer read.

It is a property of ``control.cuts``, one for each bronze table: read and written without a Spark job, as a table of its own would need.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace

from pipelines.io.conflicts import retrying
from pipelines.io.tables import Tables
from pipelines.model.columns import CUTS
from pipelines.model.namespaces import Namespace
from pipelines.silver.typed_table import Progress

_LEDGER = "strandline.ledger."


@dataclass(frozen=True)
class LastCut:
    """The newest row of ``control.cuts`` of a bronze table, as far as the next one needs it."""

    number: int
    bronze_version: int
    position: str | None
    read_position: str | None


@dataclass(frozen=True)
class Ledger:
    """Of each known collection: the progress its table had noted itself, and one version up to which all of them are complete."""

    bronze_id: str
    own: dict[Namespace, int]
    complete_through: int
    """-1: no run over all collections has ended yet."""
    moved: Mapping[str, Namespace] = field(default_factory=dict)
    """Where each renamed collection is now, by UUID."""
    versions: Mapping[str, int] = field(default_factory=dict)
    """As which version the last run left each table: one that still is at it needs no look at its progress."""
    cut: LastCut | None = None
    doubts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By table, why a cut with it is not exact; of tables that have such rows."""

    @staticmethod
    def read(tables: Tables, bronze_id: str) -> Ledger:
        """I/O: what the last run over all collections noted of this bronze table."""
        stored = tables.properties(CUTS).get(_LEDGER + bronze_id) if tables.exists(CUTS) else None
        return Ledger(bronze_id, {}, -1) if stored is None else _from_json(bronze_id, stored)

    def own_progress(self, progress: Progress | None) -> int:
        """A table's own progress in this bronze table; -1 where it is new, or was built from another one."""
        return -1 if progress is None or progress.bronze_id != self.bronze_id else progress.version

    def effective(self, namespace: Namespace, own: int) -> int:
        """The version after which a table must read. Of a collection that is not known there is no row up to `complete_through`."""
        trusted = own >= self.own.get(namespace, -1)
        return max(own, self.complete_through) if trusted else own

    def reached(self, namespace: Namespace, progress: Progress | None) -> int:
        """The same, of a table that notes *progress* itself."""
        return self.effective(namespace, self.own_progress(progress))

    def advanced(
        self,
        namespaces: Iterable[Namespace],
        through: int,
        moved: Mapping[str, Namespace],
        versions: Mapping[str, int],
        doubts: Mapping[str, tuple[str, ...]] | None = None,
    ) -> Ledger:
        """The ledger after a run over all collections: *namespaces* had news, all others had none.

        Args:
            versions: As which the run left the tables that it touched.
            doubts: Of the same tables; empty where there are none.
        """
        own = self.own | dict.fromkeys(namespaces, through)
        known = {table: reasons for table, reasons in {**self.doubts, **(doubts or {})}.items() if reasons}
        return replace(self, own=own, complete_through=through, moved=moved, versions={**self.versions, **versions}, doubts=known)

    def store(self, tables: Tables) -> None:
        """I/O: one small commit to ``control.cuts``, which is there."""
        retrying()(tables.set_properties, CUTS, {_LEDGER + self.bronze_id: self._to_json()})

    def _to_json(self) -> str:
        return json.dumps(
            {
                "own": {str(namespace): own for namespace, own in sorted(self.own.items())},
                "complete_through": self.complete_through,
                "moved": {uuid: str(namespace) for uuid, namespace in sorted(self.moved.items())},
                "versions": dict(sorted(self.versions.items())),
                "cut": None if self.cut is None else asdict(self.cut),
                "doubts": {table: list(reasons) for table, reasons in sorted(self.doubts.items())},
            }
        )


def _from_json(bronze_id: str, text: str) -> Ledger:
    stored = json.loads(text)
    return Ledger(
        bronze_id,
        own={Namespace.parse(name): own for name, own in stored["own"].items()},
        complete_through=stored["complete_through"],
        moved={uuid: Namespace.parse(name) for uuid, name in stored["moved"].items()},
        versions=stored["versions"],
        cut=None if stored["cut"] is None else LastCut(**stored["cut"]),
        doubts={table: tuple(reasons) for table, reasons in stored.get("doubts", {}).items()},
    )
