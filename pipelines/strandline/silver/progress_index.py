"""The progress index: up to which bronze version each silver table is complete. It makes idle collections free.

Each silver table stores its own progress, which takes precedence. A table without new rows is not touched, so its own
progress falls behind. For such a table the index says: no row in bronze versions (own, complete_through]. The index is
trusted only while the table's own progress is not below the version in the index: a dropped or restored table starts
over. A lost index costs one longer read of bronze.

An index is believed only while bronze still holds what its last version held (`BronzeLog.holds`). Otherwise an older
copy of bronze's folder was put back, or a commit was lost, and all of bronze is read anew.

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

from strandline.io.tables.table_store import TableStore
from strandline.model.gap import Gap
from strandline.model.namespaces import Namespace
from strandline.model.table_schemas import CUTS
from strandline.model.tables import TableName
from strandline.silver.progress import BronzeLog, Progress

_PROPERTY_PREFIX = "strandline.silver_progress."
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

    bronze: BronzeLog
    own: Mapping[Namespace, Progress] = field(default_factory=dict)
    """Progress that each collection's table had stored as its own."""
    through: Progress | None = None
    """Version of bronze up to which all tables are complete. None: no run over all collections has finished yet."""
    renamed_from: Mapping[Namespace, Mapping[Namespace, str]] = field(default_factory=dict)
    """Earlier names of each renamed collection, and the position at which each was given up."""
    versions: Mapping[str, int] = field(default_factory=dict)
    """Delta version of each silver table after the last run."""
    cut: LastCut | None = None
    inexact_reasons: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Reasons why a cut is inexact, by table. Tables without such rows are left out."""
    ended_names: frozenset[Namespace] = frozenset()
    """Names that a drop or rename up to *through* ended."""
    healed_through: str = ""
    """Largest `SnapshotCertificate.heals_up_to` of the snapshots completed up to *through*. Empty: no such snapshot."""
    healed: Mapping[str, str] = field(default_factory=dict)
    """Position up to which snapshots heal the gaps of one collection, by ``database.collection``."""
    merged_before: str = ""
    """Largest position in silver when all of bronze was last read anew. No cut below it is exact."""
    tenant_tables: Mapping[str, str] = field(default_factory=dict)
    """Pattern of each tenant table, by name, under which the tables were merged."""
    stored_at: datetime | None = None
    """Time at which the index was stored, in UTC. None: not stored yet."""

    @staticmethod
    def read(tables: TableStore, bronze: TableName) -> ProgressIndex:
        """Read the stored index of a bronze table, which exists.

        An index as before the first run if none is stored, or if bronze no longer holds what it names.

        I/O: reads properties of ``control.cuts``, and a commit of bronze.
        """
        log = BronzeLog.of(tables, bronze)
        content = tables.properties(CUTS).get(_PROPERTY_PREFIX + log.id) if tables.exists(CUTS) else None
        return ProgressIndex(log) if content is None else _from_json(log, json.loads(_decompressed(content))).believed()

    def believed(self) -> ProgressIndex:
        """Return this index, or the index with which all of bronze is read anew. I/O: reads a commit of bronze.

        The second one knows the collections, the tables' versions and the last cut.
        """
        if self.through is None or self.bronze.holds(self.through):
            return self
        return self.unread(self.own)

    def unread(self, collections: Iterable[Namespace]) -> ProgressIndex:
        """Return the index with which all of bronze is read anew. It knows these *collections*."""
        return ProgressIndex(
            self.bronze,
            {namespace: Progress(self.bronze.id, -1, None) for namespace in collections},
            versions=self.versions,
            cut=None if self.cut is None else replace(self.cut, bronze_version=-1),
            inexact_reasons=self.inexact_reasons,
            tenant_tables=self.tenant_tables,
            stored_at=self.stored_at,
        )

    @property
    def complete_through(self) -> int:
        """Version of bronze up to which all tables are complete. -1: no run over all collections has finished yet."""
        return -1 if self.through is None else self.through.version

    def own_version(self, namespace: Namespace, progress: Progress | None) -> int:
        """Return the bronze version in a table's own progress.

        -1: it has no progress, that of another bronze table, or of rows that bronze no longer holds.

        I/O: reads a commit of bronze, unless the index itself names this progress.
        """
        if progress is None or progress.bronze_id != self.bronze.id:
            return -1
        return progress.version if progress == self.own.get(namespace) or self.bronze.holds(progress) else -1

    def known_version(self, namespace: Namespace) -> int:
        """Return the bronze version that the collection's table had stored at the last run. -1: none."""
        return self.own[namespace].version if namespace in self.own else -1

    def reached(self, namespace: Namespace, progress: Progress | None) -> Progress | None:
        """Return the progress up to which a table with this stored *progress* is complete. I/O: as `own_version`.

        A collection that the index does not know has no row up to *through*. None: the table has to read all of bronze.
        """
        own = self.own_version(namespace, progress)
        is_behind = own < self.known_version(namespace) or own > self.complete_through
        return (progress if own >= 0 else None) if is_behind else self.through

    def reached_version(self, namespace: Namespace, progress: Progress | None) -> int:
        """Return the version of `reached`. -1: None."""
        reached = self.reached(namespace, progress)
        return -1 if reached is None else reached.version

    def after_run(
        self,
        namespaces: Iterable[Namespace],
        through: Progress,
        renamed_from: Mapping[Namespace, Mapping[Namespace, str]],
        versions: Mapping[str, int],
        inexact_reasons: Mapping[str, tuple[str, ...]] | None = None,
    ) -> ProgressIndex:
        """Return the index after a run over all collections, up to *through*.

        Args:
            namespaces: Collections that had new rows; all others had none.
            versions: Delta versions of the touched tables after the run.
            inexact_reasons: Reasons for inexactness of the same tables. An empty tuple removes a table's entry.
        """
        all_reasons = {
            table: reasons for table, reasons in {**self.inexact_reasons, **(inexact_reasons or {})}.items() if reasons
        }
        return replace(
            self,
            own={**self.own, **dict.fromkeys(namespaces, through)},
            through=through,
            renamed_from=renamed_from,
            versions={**self.versions, **versions},
            inexact_reasons=all_reasons,
        )

    def with_events(
        self, ended_names: Iterable[Namespace], healed_positions: Iterable[str], healed: Mapping[str, str]
    ) -> ProgressIndex:
        """Return the index with *ended_names*, *healed_positions* and *healed* of a range of bronze added.

        Temporary names are left out because they never get a table.
        """
        names = self.ended_names | {name for name in ended_names if not name.is_temporary}
        return replace(
            self,
            ended_names=names,
            healed_through=max([self.healed_through, *healed_positions]),
            healed={**self.healed, **{name: max(at, self.healed.get(name, "")) for name, at in healed.items()}},
        )

    def unhealed(self, gaps: Iterable[Gap]) -> list[Gap]:
        """Return those of *gaps* that no snapshot in silver has made up for.

        A gap of one collection needs a snapshot that has read this collection; any other gap one that has read all.
        """
        return [
            gap
            for gap in gaps
            if gap.before > (self.healed_through if gap.collection is None else self.healed.get(gap.collection, ""))
        ]

    def is_worth_a_commit(self, earlier: ProgressIndex, now: datetime) -> bool:
        """Return True if the index should be stored again.

        It should if any other field than *through* changed. It also should if *through* rose by 200 commits or more, or
        if it rose at all and the *earlier* index is a day old.
        """
        if replace(self, through=earlier.through) != earlier:
            return True
        age = 0.0 if earlier.stored_at is None else (now - earlier.stored_at).total_seconds()
        passed = self.complete_through - earlier.complete_through
        return passed >= _MAX_COMMITS_WITHOUT_NEWS or (passed > 0 and age >= _MAX_AGE_SECONDS)

    def store(self, tables: TableStore, now: datetime) -> ProgressIndex:
        """Store the index. Returns the index that a later `read` returns.

        I/O: one commit to ``control.cuts``, which must exist. Idempotent; the caller retries a write conflict.
        """
        index = replace(self, stored_at=now.replace(microsecond=0).astimezone(UTC))
        text = _compressed(json.dumps(index._to_json()))
        tables.set_properties(CUTS, {_PROPERTY_PREFIX + self.bronze.id: text})
        return index

    def _to_json(self) -> dict[str, Any]:
        return {
            "own": {str(namespace): [own.version, own.mark] for namespace, own in sorted(self.own.items())},
            "through": None if self.through is None else [self.through.version, self.through.mark],
            "renamed_from": {
                str(name): {str(old): at for old, at in earlier.items()}
                for name, earlier in sorted(self.renamed_from.items())
            },
            "versions": dict(sorted(self.versions.items())),
            "cut": None if self.cut is None else asdict(self.cut),
            "ended": sorted(map(str, self.ended_names)),
            "healed": self.healed_through,
            "healed_collections": dict(sorted(self.healed.items())),
            "doubts": {table: list(reasons) for table, reasons in sorted(self.inexact_reasons.items())},
            "merged_before": self.merged_before,
            "tenant_tables": dict(self.tenant_tables),
            "stored_at": None if self.stored_at is None else self.stored_at.isoformat(),
        }


def _compressed(text: str) -> str:
    """Compress to a sixth of the size. Every commit of properties, and its checksum file, holds all properties."""
    return base64.b64encode(zlib.compress(text.encode())).decode()


def _decompressed(text: str) -> str:
    return zlib.decompress(base64.b64decode(text)).decode()


def _from_json(bronze: BronzeLog, content: dict[str, Any]) -> ProgressIndex:
    through, stored_at = content["through"], content["stored_at"]
    return ProgressIndex(
        bronze,
        own={Namespace.parse(name): Progress(bronze.id, *own) for name, own in content["own"].items()},
        through=None if through is None else Progress(bronze.id, *through),
        renamed_from={
            Namespace.parse(name): {Namespace.parse(old): at for old, at in earlier.items()}
            for name, earlier in content["renamed_from"].items()
        },
        versions=content["versions"],
        cut=None if content["cut"] is None else LastCut(**content["cut"]),
        inexact_reasons={table: tuple(reasons) for table, reasons in content["doubts"].items()},
        ended_names=frozenset(map(Namespace.parse, content["ended"])),
        healed_through=content["healed"],
        healed=content.get("healed_collections", {}),
        merged_before=content["merged_before"],
        tenant_tables=content.get("tenant_tables", {}),
        stored_at=None if stored_at is None else datetime.fromisoformat(stored_at),
    )
