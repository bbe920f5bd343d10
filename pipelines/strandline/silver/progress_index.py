"""The progress index: up to which bronze version each silver table is complete. It makes idle collections free.

Each silver table stores its own progress, which takes precedence. A table without new rows is not touched, so its own
progress falls behind. For such a table the index says: no row in bronze versions (own, complete_through]. The index is
trusted only while the table's own progress is not below the version in the index: a dropped or restored table starts
over. A lost index costs one longer read of bronze.

The index is a property of ``control.cuts``, one for each bronze table. Reading or writing it needs no Spark job.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from strandline.io.conflicts import retrying
from strandline.io.table_store import TableStore
from strandline.model.namespaces import Namespace
from strandline.model.table_schemas import CUTS
from strandline.silver.typed_table import Progress

_PROPERTY_PREFIX = "strandline.progress_index."
_MAX_COMMITS_WITHOUT_NEWS: Final = 200
"""Maximum bronze commits without new rows before the index is stored again. Reading 100 heartbeats takes 1.2 s, 300
take 2.1 s, 1,000 take 4 s (measured)."""
_MAX_AGE_SECONDS: Final = 24 * 3600
"""Maximum age of a stored index, in seconds. Delta cannot read changes older than file retention, which is at least one
day."""


@dataclass(frozen=True)
class LastCut:
    """Fields of the newest row of ``control.cuts`` that the next cut needs."""

    number: int
    bronze_version: int
    position: str | None
    read_position: str | None


@dataclass(frozen=True)
class ProgressIndex:
    """Progress of all silver tables of one bronze table."""

    bronze_id: str
    own_versions: dict[Namespace, int]
    """Bronze version that each collection's table had stored as its own progress."""
    complete_through: int
    """Bronze version up to which all tables are complete. -1: no run over all collections has finished yet."""
    current_names: Mapping[str, Namespace] = field(default_factory=dict)
    """Current name of each renamed collection, by UUID."""
    versions: Mapping[str, int] = field(default_factory=dict)
    """Delta version of each silver table after the last run. While a table is still at this version, its progress need
    not be read."""
    cut: LastCut | None = None
    inexact_reasons: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Reasons why a cut is inexact, by table. Tables without such rows are left out."""
    ended_names: frozenset[Namespace] | None = None
    """Names that a drop or rename up to `complete_through` ended. None: an older release wrote the index and did not
    store them."""
    healed_through: str | None = None
    """Largest `SnapshotCertificate.heals_up_to` of the snapshots completed up to `complete_through`. Empty: no such
    snapshot. None: an older release wrote the index and did not store it."""
    stored_at: datetime | None = None
    """Time at which the index was stored, in UTC. None: not stored yet, or stored by an older release."""

    @staticmethod
    def read(tables: TableStore, bronze_id: str) -> ProgressIndex:
        """Read the stored index of a bronze table.

        An empty index if none is stored. I/O: reads properties of ``control.cuts``.
        """
        stored = tables.properties(CUTS).get(_PROPERTY_PREFIX + bronze_id) if tables.exists(CUTS) else None
        return (
            ProgressIndex.empty(bronze_id)
            if stored is None
            else _from_json(bronze_id, json.loads(_decompressed(stored)))
        )

    @staticmethod
    def empty(bronze_id: str) -> ProgressIndex:
        """Return the index before the first run over all collections."""
        return ProgressIndex(bronze_id, {}, -1, ended_names=frozenset(), healed_through="")

    def own_progress(self, progress: Progress | None) -> int:
        """Return the bronze version in a table's own progress. -1: no progress, or that of another bronze table."""
        return -1 if progress is None or progress.bronze_id != self.bronze_id else progress.version

    def effective_version(self, namespace: Namespace, own: int) -> int:
        """Return the bronze version up to which a table is complete.

        A collection that the index does not know has no row up to `complete_through`.

        Args:
            own: Bronze version in the table's own progress; -1: none.
        """
        trusted = own >= self.own_versions.get(namespace, -1)
        return max(own, self.complete_through) if trusted else own

    def reached_version(self, namespace: Namespace, progress: Progress | None) -> int:
        """Return the bronze version up to which a table with this stored *progress* is complete."""
        return self.effective_version(namespace, self.own_progress(progress))

    def after_run(
        self,
        namespaces: Iterable[Namespace],
        through: int,
        current_names: Mapping[str, Namespace],
        versions: Mapping[str, int],
        inexact_reasons: Mapping[str, tuple[str, ...]] | None = None,
    ) -> ProgressIndex:
        """Return the index after a run over all collections, up to bronze version *through*.

        Args:
            namespaces: Collections that had new rows; all others had none.
            versions: Delta versions of the touched tables after the run.
            inexact_reasons: Reasons for inexactness of the same tables. An empty tuple removes a table's entry.
        """
        own_versions = self.own_versions | dict.fromkeys(namespaces, through)
        known = {
            table: reasons for table, reasons in {**self.inexact_reasons, **(inexact_reasons or {})}.items() if reasons
        }
        return replace(
            self,
            own_versions=own_versions,
            complete_through=through,
            current_names=current_names,
            versions={**self.versions, **versions},
            inexact_reasons=known,
        )

    def with_events(self, ended_names: Iterable[Namespace], healed_positions: Iterable[str]) -> ProgressIndex:
        """Return the index with *ended_names* and *healed_positions* of a range of bronze added.

        Temporary names are left out because they never get a table.
        """
        names = (self.ended_names or frozenset()) | {name for name in ended_names if not name.is_temporary}
        return replace(self, ended_names=names, healed_through=max([self.healed_through or "", *healed_positions]))

    def is_worth_a_commit(self, stored: ProgressIndex, now: datetime) -> bool:
        """Return True if the index should be stored again.

        It should if any other field than `complete_through` changed. It also should if `complete_through` rose by 200
        commits or more, or if it rose at all and the *stored* index is a day old.
        """
        if replace(self, complete_through=stored.complete_through) != stored:
            return True
        age = 0.0 if stored.stored_at is None else (now - stored.stored_at).total_seconds()
        passed = self.complete_through - stored.complete_through
        return passed >= _MAX_COMMITS_WITHOUT_NEWS or (passed > 0 and age >= _MAX_AGE_SECONDS)

    def store(self, tables: TableStore, now: datetime) -> ProgressIndex:
        """Store the index. Returns the index that a later `read` returns.

        I/O: one commit to ``control.cuts``, which must exist. Idempotent; retried after a write conflict.
        """
        stored = replace(self, stored_at=now.replace(microsecond=0).astimezone(UTC))
        retrying()(
            tables.set_properties, CUTS, {_PROPERTY_PREFIX + self.bronze_id: _compressed(json.dumps(stored._to_json()))}
        )
        return stored

    def _to_json(self) -> dict[str, Any]:
        return {
            "own": {str(namespace): own for namespace, own in sorted(self.own_versions.items())},
            "complete_through": self.complete_through,
            "moved": {uuid: str(namespace) for uuid, namespace in sorted(self.current_names.items())},
            "versions": dict(sorted(self.versions.items())),
            "cut": None if self.cut is None else asdict(self.cut),
            "ended": None if self.ended_names is None else sorted(map(str, self.ended_names)),
            "healed": self.healed_through,
            "doubts": {table: list(reasons) for table, reasons in sorted(self.inexact_reasons.items())},
            "stored_at": None if self.stored_at is None else self.stored_at.isoformat(),
        }


def _compressed(text: str) -> str:
    """Compress to a sixth of the size. Every commit of properties, and its checksum file, holds all properties."""
    return base64.b64encode(zlib.compress(text.encode())).decode()


def _decompressed(stored: str) -> str:
    """Return the stored JSON. Older releases stored it uncompressed."""
    return stored if stored.startswith("{") else zlib.decompress(base64.b64decode(stored)).decode()


def _from_json(bronze_id: str, stored: dict[str, Any]) -> ProgressIndex:
    ended, stored_at = stored.get("ended"), stored.get("stored_at")
    return ProgressIndex(
        bronze_id,
        own_versions={Namespace.parse(name): own for name, own in stored["own"].items()},
        complete_through=stored["complete_through"],
        current_names={uuid: Namespace.parse(name) for uuid, name in stored["moved"].items()},
        versions=stored["versions"],
        cut=None if stored["cut"] is None else LastCut(**stored["cut"]),
        inexact_reasons={table: tuple(reasons) for table, reasons in stored.get("doubts", {}).items()},
        ended_names=None if ended is None else frozenset(map(Namespace.parse, ended)),
        healed_through=stored.get("healed"),
        stored_at=None if stored_at is None else datetime.fromisoformat(stored_at),
    )
