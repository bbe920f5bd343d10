"""Comparison of one collection with its silver table: digests by `_id` range first, keys only where digests differ."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline.errors import RetriableError
from strandline.io.tables.ddl import schema_of
from strandline.jobs.catch_up import CatchUp
from strandline.jobs.context import JobContext
from strandline.jobs.reconcile.source_digests import RangeRead, SourceDigests
from strandline.jobs.silver.history import tables_of
from strandline.jobs.silver.table_names import table_of
from strandline.model.merge_rule import MergeRule
from strandline.model.namespaces import Namespace
from strandline.model.position import snapshot_position
from strandline.model.range_digest import RangeDigest
from strandline.model.table_schemas import RECONCILE, RECONCILE_DDL, SILVER_BOOKKEEPING_DDL
from strandline.model.tables import literal
from strandline.silver.history.table import HistoryTable
from strandline.silver.owned_table import shape_in
from strandline.silver.reconcile_diff import WAITING_RANGE, differences, silver_documents, silver_sums
from strandline.silver.silver_metadata import SilverState
from strandline.silver.typed_diff import unlike_documents
from strandline.source.client import AnyClient, find_collection, operation_time

_log = logging.getLogger("strandline.reconcile")


@dataclass(frozen=True)
class ComparisonResult:
    """Differences between one collection and its silver table."""

    collection: str
    documents: int
    """Documents in the source."""
    ranges: int
    """Ranges of `_id` into which the collection was divided."""
    differing: int
    """Ranges that were compared key by key."""
    missing: int = 0
    """Documents that silver lacks."""
    extra: int = 0
    """Rows of silver that the source lacks."""
    different: int = 0
    """Rows of silver whose document differs from the source."""
    column: int = 0
    """Rows of silver with a column or a rescued value that is not the document's."""
    history: int = 0
    """Versions in the history table with such a column or value."""
    late: int = 0
    """Rows of both with a rescued value that its column can hold. The column is newer; a rebuild fills it."""
    repaired: int = 0
    """Differences whose documents were read again into bronze."""
    gap: str | None = None
    """Changes of the collection that bronze lacks, and so missing documents. None: there are none."""

    @property
    def differences(self) -> int:
        """Number of rows that differ."""
        return self.missing + self.extra + self.different + self.column + self.history


@dataclass(frozen=True)
class Comparison:
    """Comparison of one collection in one reconcile run."""

    ctx: JobContext
    client: AnyClient
    """Opened with ``raw=True``."""
    namespace: Namespace
    source: SourceDigests
    catch_up: CatchUp
    run_id: str
    at: datetime
    """Start of the run, UTC."""

    def run(self, reads: list[RangeRead]) -> ComparisonResult:
        """Compare silver with what *reads* found in the source. Silver must have merged everything up to these reads.

        I/O: reads silver and the source; writes one row to ``control.reconcile`` for every key that differs. Order:
        compare the digests of all ranges; compare the keys of differing ranges; compare these keys again later.

        Only the second comparison proves a difference: a document that was looked up for an update may be newer than
        its position in the first one. A row that has changed in between is left out.

        Args:
            reads: Digest of each range of the source.

        Raises:
            RetriableError: Silver does not catch up, or the source cannot be read at the chosen cluster time.
        """
        unequal = self._unequal_ranges(reads)
        differing = [number for number in unequal if number != WAITING_RANGE]
        result = ComparisonResult(
            str(self.namespace), sum(range_read.sum.documents for range_read in reads), len(reads), len(differing)
        )
        if not unequal:
            return result
        differences, through = self._differences(differing)
        self._record(differences.withColumn("paths", F.lit(None).cast("ARRAY<STRING>")), through)
        if self._difference_rows().isEmpty():
            return result
        again, _ = self._differences(differing)
        if (
            self.source.collection is None
            and find_collection(self.client[self.namespace.db], self.namespace.collection) is not None
        ):
            raise RetriableError(
                f"{self.namespace} was created while it was compared", next_step="strandline reconcile, again"
            )
        self._confirm(again)
        kinds = {row["kind"]: row["count"] for row in self.confirmed().groupBy("kind").count().collect()}
        return ComparisonResult(result.collection, result.documents, result.ranges, result.differing, **kinds)

    def with_columns(self, result: ComparisonResult) -> ComparisonResult:
        """Compare every column and ``_rescued`` with the row's document, and add what differs to *result*.

        I/O: reads the silver and the history table; writes one row to ``control.reconcile`` for every row that differs.
        """
        counts, late = {}, 0
        for table in tables_of(self.ctx, self.namespace):
            if not self.ctx.tables.exists(table.name):
                continue
            rows, kind = self.ctx.tables.read(table.name), "history" if isinstance(table, HistoryTable) else "column"
            shape = shape_in(self.ctx.tables.properties(table.name))
            table.require([name for name, _ in shape.columns()])
            unlike = unlike_documents(rows if kind == "history" else rows.where(~F.col("_deleted")), shape)
            numbers = unlike.agg(F.count_if(F.size("wrong") > 0), F.count_if(F.size("late") > 0)).collect()
            ((counts[kind], of_table),) = numbers
            late += of_table
            if counts[kind]:
                wrong = unlike.where("size(wrong) > 0").withColumns({"kind": F.lit(kind), "paths": F.col("wrong")})
                self._record(wrong, snapshot_position(*operation_time(self.client)), confirmed=True)
        return replace(result, late=late, **counts)

    def _rows(self) -> DataFrame:
        """Read silver. Rows of earlier lives of the name that silver keeps on purpose are left out."""
        settings, table = self.ctx.settings.silver, table_of(self.ctx, self.namespace)
        if not self.ctx.tables.exists(table):
            return self.ctx.spark.createDataFrame([], schema_of(SILVER_BOOKKEEPING_DDL))
        rows = self.ctx.tables.read(table)
        if self.source.collection is None or not settings.keeps_old_lives:
            return rows
        boundaries = SilverState.of(self.ctx.tables.properties(table)).incarnations.lives.boundaries
        return rows.where(F.col("_position") > boundaries[-1]) if boundaries else rows

    def _unequal_ranges(self, reads: list[RangeRead]) -> list[int]:
        """Return the numbers of ranges whose digests differ, and `WAITING_RANGE` if rows wait for their document."""
        rows = silver_sums(self._rows(), self.source.bounds, [range_read.position for range_read in reads]).collect()
        sums = {row["number"]: RangeDigest.from_parts(row["documents"], row["parts"]) for row in rows}
        expected = {number: range_read.sum for number, range_read in enumerate(reads)} | {WAITING_RANGE: RangeDigest()}
        return [number for number, whole in expected.items() if whole != sums.get(number, RangeDigest())]

    def _differences(self, numbers: list[int]) -> tuple[DataFrame, str]:
        """Return the lazy differences at the current cluster time, and that time as a position. Waits for silver."""
        at = operation_time(self.client)
        self.catch_up.silver(self.catch_up.bronze(at), [self.namespace])
        through = snapshot_position(*at)
        silver = silver_documents(self._rows(), self.source.bounds, numbers, through)
        return differences(self.source.documents(numbers, at), silver), through

    def _record(self, differences: DataFrame, through: str, *, confirmed: bool = False) -> None:
        constants = {
            "run_id": self.run_id,
            "at": self.at,
            "source": self.ctx.settings.source.name,
            "db": self.namespace.db,
            "collection": self.namespace.collection,
            "compared_at": through,
            "confirmed": confirmed,
        }
        rows = differences.withColumns({name: F.lit(value) for name, value in constants.items()})
        rows = rows.withColumn("repaired_at", F.lit(None).cast("TIMESTAMP"))
        with self.source.translate_errors():
            self.ctx.tables.append(RECONCILE, rows.select(*schema_of(RECONCILE_DDL).names))

    def _confirm(self, again: DataFrame) -> None:
        rule = MergeRule(("key", "kind", "position")).update([], {"confirmed": "true"})
        with self.source.translate_errors():
            self.ctx.tables.merge(RECONCILE, again, rule, among=self._own_rows("t."))
        temporary = self._difference_rows().where(~F.col("confirmed")).count()
        if temporary:
            _log.info("%s: %d differences were gone when they were checked again", self.namespace, temporary)

    def _own_rows(self, prefix: str = "") -> str:
        """SQL condition on the rows of this comparison."""
        own = {"run_id": self.run_id, "db": self.namespace.db, "collection": self.namespace.collection}
        return " AND ".join(f"{prefix}{name} = {literal(value)}" for name, value in own.items())

    def _difference_rows(self) -> DataFrame:
        return self.ctx.tables.read(RECONCILE).where(self._own_rows())

    def confirmed(self) -> DataFrame:
        """Rows of ``control.reconcile`` that both comparisons of this run have found."""
        return self._difference_rows().where("confirmed")

    def repairable(self) -> DataFrame:
        """Rows of `confirmed` that a new READ of the document corrects: all but those of the history."""
        return self.confirmed().where("kind <> 'history'")

    def record_repair(self, when: datetime) -> None:
        """I/O: writes the time of the repair to ``control.reconcile`` in one commit."""
        repaired = f"{self._own_rows()} AND confirmed AND kind <> 'history'"
        self.ctx.tables.update(RECONCILE, {"repaired_at": literal(when)}, repaired)
