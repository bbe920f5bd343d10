"""What an idle collection costs: nothing.

Each silver table carries its own progress and is believed before anything else. A table without news is not touched, so its progress
falls behind; the ledger says of such a table "no row of it in bronze versions (own, through]". It is trusted only while the table's own
progress is not below *own*: a table that was dropped or restored begins anew. Losing the ledger costs one longer read.

It is a property of ``control.cuts``, one for each bronze table: read and written without a Spark job, as a table of its own would need.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from pipelines.io.conflicts import retrying
from pipelines.io.tables import Tables
from pipelines.model.namespaces import Namespace
from pipelines.model.table_schemas import CUTS
from pipelines.silver.typed_table import Progress

_LEDGER = "strandline.progress_index."
_LOOKS_THROUGH: Final = 200
"""Commits of bronze without news that one look may cross. Measured: 100 heartbeats take 1.2 s, 300 take 2.1 s, 1,000 take 4 s."""
_LOOKS_BACK_SECONDS: Final = 24 * 3600
"""Delta reads no changes of commits that are older than the retention of files, which is at least a day."""


@dataclass(frozen=True)
class LastCut:
    """The newest row of ``control.cuts`` of a bronze table, as far as the next one needs it."""

    number: int
    bronze_version: int
    position: str | None
    read_position: str | None


@dataclass(frozen=True)
class ProgressIndex:
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
    ended: frozenset[Namespace] | None = None
    """Names that drops and renames up to `complete_through` speak of. None: a release that did not note them wrote this."""
    healed: str | None = None
    """Largest `SnapshotCertificate.heals_up_to` of the snapshots completed up to `complete_through`; empty: there is none. None: as above."""
    stored_at: datetime | None = None
    """When it was stored, UTC."""

    @staticmethod
    def read(tables: Tables, bronze_id: str) -> ProgressIndex:
        """I/O: what the last run over all collections noted of this bronze table."""
        stored = tables.properties(CUTS).get(_LEDGER + bronze_id) if tables.exists(CUTS) else None
        return (
            ProgressIndex.empty(bronze_id) if stored is None else _from_json(bronze_id, json.loads(_unpacked(stored)))
        )

    @staticmethod
    def empty(bronze_id: str) -> ProgressIndex:
        """Before the first run over all collections."""
        return ProgressIndex(bronze_id, {}, -1, ended=frozenset(), healed="")

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
    ) -> ProgressIndex:
        """The ledger after a run over all collections: *namespaces* had news, all others had none.

        Args:
            versions: As which the run left the tables that it touched.
            doubts: Of the same tables; empty where there are none.
        """
        own = self.own | dict.fromkeys(namespaces, through)
        known = {table: reasons for table, reasons in {**self.doubts, **(doubts or {})}.items() if reasons}
        return replace(
            self, own=own, complete_through=through, moved=moved, versions={**self.versions, **versions}, doubts=known
        )

    def having_met(self, ended: Iterable[Namespace], healed: Iterable[str]) -> ProgressIndex:
        """The ledger with what a range of bronze tells: names that *ended*, and positions up to which its snapshots heal gaps.

        Temporary names are left out: none of them gets a table.
        """
        names = (self.ended or frozenset()) | {name for name in ended if not name.is_temporary}
        return replace(self, ended=names, healed=max([self.healed or "", *healed]))

    def is_worth_a_commit(self, stored: ProgressIndex, now: datetime) -> bool:
        """False while the ledger says nothing that *stored* does not say, except that some more commits of bronze bring no news."""
        if replace(self, complete_through=stored.complete_through) != stored:
            return True
        age = 0.0 if stored.stored_at is None else (now - stored.stored_at).total_seconds()
        passed = self.complete_through - stored.complete_through
        return passed >= _LOOKS_THROUGH or (passed > 0 and age >= _LOOKS_BACK_SECONDS)

    def store(self, tables: Tables, now: datetime) -> ProgressIndex:
        """I/O: one commit to ``control.cuts``, which is there. Returns what a later `read` returns."""
        noted = replace(self, stored_at=now.replace(microsecond=0).astimezone(UTC))
        retrying()(tables.set_properties, CUTS, {_LEDGER + self.bronze_id: _packed(json.dumps(noted._to_json()))})
        return noted

    def _to_json(self) -> dict[str, Any]:
        return {
            "own": {str(namespace): own for namespace, own in sorted(self.own.items())},
            "complete_through": self.complete_through,
            "moved": {uuid: str(namespace) for uuid, namespace in sorted(self.moved.items())},
            "versions": dict(sorted(self.versions.items())),
            "cut": None if self.cut is None else asdict(self.cut),
            "ended": None if self.ended is None else sorted(map(str, self.ended)),
            "healed": self.healed,
            "doubts": {table: list(reasons) for table, reasons in sorted(self.doubts.items())},
            "stored_at": None if self.stored_at is None else self.stored_at.isoformat(),
        }


def _packed(text: str) -> str:
    """A sixth of the size: every commit of properties carries all of them, and so does its checksum."""
    return base64.b64encode(zlib.compress(text.encode())).decode()


def _unpacked(stored: str) -> str:
    """Older releases stored plain JSON."""
    return stored if stored.startswith("{") else zlib.decompress(base64.b64decode(stored)).decode()


def _from_json(bronze_id: str, stored: dict[str, Any]) -> ProgressIndex:
    ended, stored_at = stored.get("ended"), stored.get("stored_at")
    return ProgressIndex(
        bronze_id,
        own={Namespace.parse(name): own for name, own in stored["own"].items()},
        complete_through=stored["complete_through"],
        moved={uuid: Namespace.parse(name) for uuid, name in stored["moved"].items()},
        versions=stored["versions"],
        cut=None if stored["cut"] is None else LastCut(**stored["cut"]),
        doubts={table: tuple(reasons) for table, reasons in stored.get("doubts", {}).items()},
        ended=None if ended is None else frozenset(map(Namespace.parse, ended)),
        healed=stored.get("healed"),
        stored_at=None if stored_at is None else datetime.fromisoformat(stored_at),
    )
