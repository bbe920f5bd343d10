"""One collection of the source held against its silver table: sums by `_id` range first, keys only where the sums differ."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import add

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.errors import RetriableError
from pipelines.io.ddl import schema_of
from pipelines.jobs.context import JobContext
from pipelines.jobs.reconcile.catch_up import CatchUpBarrier
from pipelines.jobs.reconcile.source_digests import RangeRead, SourceDigests
from pipelines.jobs.silver.table_names import table_of
from pipelines.model.namespaces import Namespace
from pipelines.model.position import snapshot_position
from pipelines.model.range_digest import RangeDigest
from pipelines.model.table_schemas import RECONCILE, RECONCILE_DDL, SILVER_BOOKKEEPING_DDL
from pipelines.model.tables import literal
from pipelines.silver.reconcile_diff import WAITING_RANGE, differences, silver_documents, silver_sums
from pipelines.source.client import AnyClient, find_collection, operation_time

_log = logging.getLogger("strandline.reconcile")


@dataclass(frozen=True)
class Compared:
    """How one collection compares, seen from silver."""

    collection: str
    documents: int
    """In the source."""
    ranges: int
    differing: int
    """Ranges that were compared key by key."""
    missing: int = 0
    extra: int = 0
    different: int = 0
    repaired: int = 0

    @property
    def differences(self) -> int:
        return self.missing + self.extra + self.different


@dataclass(frozen=True)
class Comparison:
    """One collection in one run.

    Args:
        client: Opened with ``raw=True``.
        at: When the run began.
    """

    ctx: JobContext
    client: AnyClient
    namespace: Namespace
    look: SourceDigests
    caught_up: CatchUpBarrier
    run_id: str
    at: datetime

    def run(self, reads: list[RangeRead]) -> Compared:
        """I/O: reads silver, which is complete to what *reads* saw of the source; one row in ``control.reconcile`` for every key that
        differs. Order: sums of all ranges; then, of those that differ, the keys of both sides; then these again at a later cluster time.

        The second look is what makes a difference certain: a document that was looked up for an update may be newer than its position, but
        not than the second look, unless the row has changed in between.

        Raises:
            RetriableError: The lake does not reach the cluster time at which the source was read, or the source cannot be read there.
        """
        unequal = self._unequal(reads)
        differing = [number for number in unequal if number != WAITING_RANGE]
        result = Compared(str(self.namespace), sum(read.sum.documents for read in reads), len(reads), len(differing))
        if not unequal:
            return result
        self._note(*self._differences(differing))
        if self._found().isEmpty():
            return result
        again, _ = self._differences(differing)
        if (
            self.look.collection is None
            and find_collection(self.client[self.namespace.db], self.namespace.collection) is not None
        ):
            raise RetriableError(
                f"{self.namespace} was created while it was compared", next_step="strandline reconcile, again"
            )
        self._confirm(again)
        kinds = {row["kind"]: row["count"] for row in self.confirmed().groupBy("kind").count().collect()}
        return Compared(result.collection, result.documents, result.ranges, result.differing, **kinds)

    def _rows(self) -> DataFrame:
        """Silver as it is now; of a table that keeps what the source has dropped, only the collection's present life."""
        settings, table = self.ctx.settings.silver, table_of(self.ctx, self.namespace)
        if not self.ctx.tables.exists(table):
            return self.ctx.spark.createDataFrame([], schema_of(SILVER_BOOKKEEPING_DDL))
        rows, collection = self.ctx.tables.read(table), self.look.collection
        if collection is None or not keeps_old_lives(settings.on_drop, settings.on_rename):
            return rows
        return rows.where(F.coalesce(F.col("_collection_uuid") == F.lit(collection.uuid), F.lit(True)))

    def _unequal(self, reads: list[RangeRead]) -> list[int]:
        """Ranges whose sums differ; `WAITING_RANGE` among them, where rows wait for their document."""
        rows = silver_sums(self._rows(), self.look.bounds, [read.position for read in reads]).collect()
        sums: dict[int, list[RangeDigest]] = {}
        for row in rows:
            sums.setdefault(row["number"], []).append(RangeDigest.from_hex(row["documents"], row["total"]))
        expected = {number: read.sum for number, read in enumerate(reads)} | {WAITING_RANGE: RangeDigest()}
        return [
            number for number, whole in expected.items() if whole != reduce(add, sums.get(number, []), RangeDigest())
        ]

    def _differences(self, numbers: list[int]) -> tuple[DataFrame, str]:
        """What differs at the cluster time of now, and that time as a position; lazy, but silver is complete to it."""
        at = operation_time(self.client)
        self.caught_up.wait(at, [self.namespace])
        through = snapshot_position(*at)
        silver = silver_documents(self._rows(), self.look.bounds, numbers, through)
        return differences(self.look.documents(numbers, at), silver), through

    def _note(self, found: DataFrame, through: str) -> None:
        constants = {
            "run_id": self.run_id,
            "at": self.at,
            "source": self.ctx.settings.source.name,
            "db": self.namespace.db,
            "collection": self.namespace.collection,
            "compared_at": through,
            "confirmed": False,
        }
        rows = found.withColumns({name: F.lit(value) for name, value in constants.items()})
        rows = rows.withColumn("repaired_at", F.lit(None).cast("TIMESTAMP"))
        with self.look.translate_errors():
            self.ctx.tables.append(RECONCILE, rows.select(*schema_of(RECONCILE_DDL).names))

    def _confirm(self, again: DataFrame) -> None:
        same = f"{self._is_mine('t.')} AND t.key = s.key AND t.kind = s.kind AND t.position <=> s.position"
        with self.look.translate_errors():
            self.ctx.tables.merge(RECONCILE, again, same).update({"confirmed": "true"}).execute()
        passed = self._found().where(~F.col("confirmed")).count()
        if passed:
            _log.info("%s: %d differences passed while they were looked at again", self.namespace, passed)

    def _is_mine(self, prefix: str = "") -> str:
        mine = {"run_id": self.run_id, "db": self.namespace.db, "collection": self.namespace.collection}
        return " AND ".join(f"{prefix}{name} = {literal(value)}" for name, value in mine.items())

    def _found(self) -> DataFrame:
        return self.ctx.tables.read(RECONCILE).where(self._is_mine())

    def confirmed(self) -> DataFrame:
        """Rows of ``control.reconcile`` that this comparison has found, and found again."""
        return self._found().where("confirmed")

    def note_repair(self, when: datetime) -> None:
        """I/O: one commit."""
        self.ctx.tables.update(RECONCILE, {"repaired_at": literal(when)}, f"{self._is_mine()} AND confirmed")


def keeps_old_lives(on_drop: str, on_rename: str) -> bool:
    """Whether living rows of a collection that is gone are wanted."""
    return on_drop == "keep" or on_rename == "split"
