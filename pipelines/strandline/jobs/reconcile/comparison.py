"""Comparison of one collection with its silver table: digests by `_id` range first, keys only where digests differ."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Any, Final, TypeVar

import pyarrow as pa

from strandline.bronze.appender import BronzeAppender
from strandline.bronze.envelope import SCHEMA
from strandline.errors import RetriableError, one_line
from strandline.io.delta_log.mergeable_table import ONLY_SPARK
from strandline.io.delta_log.parquet_file import TooLarge
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.jobs.catch_up import CatchUp
from strandline.jobs.lake_context import PipelineContext
from strandline.jobs.reconcile.engines import Engine, LocalEngine, Rows, SparkEngine
from strandline.jobs.reconcile.repair import repairing
from strandline.jobs.reconcile.source_digests import RangeRead, SourceDigests
from strandline.jobs.silver.table_names import holder_of, key_prefix_of, names_of, table_of
from strandline.model.bson.id_order import RangeFinder
from strandline.model.field_rules import FieldPolicy
from strandline.model.namespaces import Namespace
from strandline.model.position import BEFORE_ALL, snapshot_position
from strandline.model.query import Condition, Query
from strandline.model.range_digest import RangeDigest
from strandline.model.table_schemas import RECONCILE
from strandline.model.tables import TableName
from strandline.model.tenants import group_values
from strandline.silver.incarnations import Incarnations, facts_in
from strandline.silver.owned_table import OwnedTable, shape_in
from strandline.silver.reconcile_diff import (
    DIFFERENCES,
    DOCUMENTS,
    REPORT,
    SUMS,
    WAITING_RANGE,
    Batches,
    adding,
    comparing,
    identified,
    in_ranges,
    listing,
    own_rows,
    reporting,
    summing,
    sums_in,
)
from strandline.silver.typed_diff import CHECKED, COUNTS, WRONG, checking, counting, wrong_rows
from strandline.source.client import AnyClient, find_collection, operation_time

R = TypeVar("R")

_log = logging.getLogger("strandline.reconcile")
_RANGES_OF_A_GROUP: Final = 100
"""Ranges whose sums one task of Spark adds."""
_DOCUMENTS_OF_A_GROUP: Final = 500_000
"""Documents of the source that one task of Spark compares with silver, in memory."""


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

    ctx: PipelineContext
    client: AnyClient
    """Opened with ``raw=True``."""
    namespace: Namespace
    source: SourceDigests
    catch_up: CatchUp
    run_id: str
    at: datetime
    """Start of the run, UTC."""

    @property
    def _engine(self) -> Engine:
        tables = self.ctx.tables
        return LocalEngine(tables) if isinstance(tables, DeltaRsTables) else SparkEngine(self.ctx.with_spark())

    def read_source(self, at: tuple[int, int], numbers: Sequence[int] | None = None) -> dict[int, RangeRead]:
        """I/O: see `SourceDigests.sums`."""
        return self.source.sums(self._engine, at, numbers)

    def run(self, reads: Mapping[int, RangeRead]) -> ComparisonResult:
        """Compare silver with what *reads* found in the source. Silver must have merged everything up to these reads.

        Arguments, I/O, errors: see `compare`.
        """
        differing, through = self.compare(reads)
        documents = sum(range_read.sum.documents for range_read in reads.values())
        result = ComparisonResult(str(self.namespace), documents, len(reads), len(differing))
        if not through:
            return result
        kinds = self.ctx.tables.query(
            self._own_rows().where(("confirmed", "=", True)).group("kind").aggregate(rows=("count", "key"))
        )
        return replace(result, **{row["kind"]: row["rows"] for row in kinds})

    def compare(self, reads: Mapping[int, RangeRead]) -> tuple[list[int], str]:
        """Record the keys that differ. Return the ranges whose keys were compared, and the position of that.

        I/O: reads silver and the source; writes one row to ``control.reconcile`` for every key that differs. Order:
        compare the digests of the ranges; compare the keys of differing ranges; compare these keys again later.

        Only the second comparison proves a difference: a document that was looked up for an update may be newer than
        its position in the first one. A row that has changed in between is left out.

        Args:
            reads: Digest of each range of the source that is compared.

        Returns:
            No ranges and an empty position if all digests are equal.

        Raises:
            RetriableError: Silver does not catch up, or the source cannot be read at the chosen cluster time.
        """
        unequal = self._by_engine(lambda engine: self._unequal_ranges(engine, reads))
        differing = [number for number in unequal if number != WAITING_RANGE]
        return differing, self._by_engine(lambda engine: self._settle(engine, reads, differing)) if unequal else ""

    def differences_by_range(self) -> Counter[int]:
        """Return the number of recorded differences of each range. I/O: reads ``control.reconcile``."""
        finder, numbers = RangeFinder(self.source.bounds), self.source.numbers or range(len(self.source.ranges))
        counts = Counter[int]()
        for row in self.ctx.tables.query(self._own_rows().select("identifier").where(("confirmed", "=", True))):
            number = (
                -1 if row["identifier"] is None else finder.number(row["identifier"])
            )  # a waiting row is of no range
            counts[number if number in numbers else numbers[0]] += 1
        return counts

    def _by_engine(self, work: Callable[[Engine], R], *, only_spark: bool = False) -> R:
        """Return the result of *work*, by Spark if this process cannot do it. Nothing was written then."""
        engine = self._engine
        if only_spark or isinstance(engine, SparkEngine):
            return work(SparkEngine(self.ctx.with_spark()))
        try:
            return work(engine)
        except ONLY_SPARK as error:
            reason = "the rows that differ are too many" if isinstance(error, TooLarge) else one_line(error)
            _log.info("Spark compares %s: %s", self.namespace, reason)
            return work(SparkEngine(self.ctx.with_spark()))

    def with_columns(self, result: ComparisonResult) -> ComparisonResult:
        """Compare every column and ``_rescued`` with the row's document, and add what differs to *result*.

        I/O: reads the silver and the history table; writes one row to ``control.reconcile`` for every row that differs.
        """
        counts, late = dict[str, Any](), 0
        for kind, name in zip(("column", "history"), names_of(self.ctx, self.namespace), strict=False):
            counts[kind], more = self.compare_columns(name, kind)
            late += more
        return replace(result, late=late, **counts)

    def compare_columns(self, name: TableName, kind: str = "column") -> tuple[int, int]:
        """Return the numbers of rows with wrong and with late values. I/O: see `with_columns`."""
        if not self.ctx.tables.exists(name):
            return 0, 0
        return self._by_engine(partial(self._compare_columns, name=name, kind=kind))

    def _compare_columns(self, engine: Engine, name: TableName, kind: str) -> tuple[int, int]:
        """Return the numbers of rows with wrong and with late values. The first ones are recorded."""
        table = OwnedTable(self.ctx.tables, name)
        shape = shape_in(self.ctx.tables.properties(name))
        table.require([name for name, _ in shape.columns()])
        groups = {
            column: next(group_values(inner.pattern, column, [self._prefix]))
            for column, inner in shape.columns()
            if inner.pattern is not None
        }
        check = self._of_own_ranges(self._of_own_rows(checking(shape, groups)))
        unlike = engine.typed(name, shape, self._prefix, living=kind == "column").map(check, CHECKED)
        counts = unlike.map(counting, COUNTS).collect().to_pylist()
        wrong, late = (sum(row[column] for row in counts) for column in COUNTS.names)
        if wrong:
            through = snapshot_position(*operation_time(self.client))
            engine.append(RECONCILE, self._report(unlike.map(wrong_rows, WRONG), through, confirmed=True, kind=kind))
        return wrong, late

    def _of_own_ranges(self, work: Batches) -> Batches:
        """Return *work* on the rows of the ranges that are compared."""
        if self.source.numbers is None:
            return work
        own = in_ranges(self.source.bounds, self.source.numbers)
        return lambda batches: work(own(batches))

    def _of_own_rows(self, work: Batches) -> Batches:
        """Return *work* on the rows of the collection, with the keys that its documents have in the source."""
        if not (prefix := self._prefix):
            return work
        return lambda batches: work(own_rows(batches, prefix))

    @cached_property
    def _prefix(self) -> str:
        """Beginning of the keys of the collection, if it is a tenant. Empty: it has a table of its own."""
        return key_prefix_of(self.ctx.settings.silver, self.namespace)

    def _facts(self, engine: Engine, work: Batches, schema: pa.Schema) -> Rows:
        """Return the output of *work* on the rows of the collection."""
        rows = engine.facts(table_of(self.ctx, self.namespace), self._prefix)
        return rows.map(self._of_own_rows(work), schema)

    def _after(self) -> str:
        """Return the position up to which silver keeps, on purpose, rows of earlier lives of the name."""
        settings, table = self.ctx.settings.silver, table_of(self.ctx, self.namespace)
        if not settings.keeps_old_lives or self.source.collection is None or not self.ctx.tables.exists(table):
            return ""
        holder = holder_of(self.ctx.settings.silver, self.namespace)
        facts = facts_in(self.ctx.tables.properties(table), holder)
        boundaries = facts.get(self.namespace, Incarnations()).lives.boundaries
        return boundaries[-1] if boundaries else ""

    def _unequal_ranges(self, engine: Engine, reads: Mapping[int, RangeRead]) -> list[int]:
        """Return the numbers of ranges whose digests differ, and `WAITING_RANGE` if rows wait for their document.

        Waiting rows may be of any range. If only some ranges are compared, such a row makes its range differ.
        """
        positions = {number: range_read.position for number, range_read in reads.items()}
        rows = self._facts(engine, summing(self.source.bounds, positions, self._after()), SUMS)
        # Added where the engine runs: a large table has as many parts as ranges, and each part may hold all ranges.
        rows = rows.grouped("number", 1 + len(reads) // _RANGES_OF_A_GROUP).map(adding, SUMS)
        sums = sums_in(rows.collect().to_batches())
        expected = {number: range_read.sum for number, range_read in reads.items()}
        if self.source.numbers is None:
            expected[WAITING_RANGE] = RangeDigest()
        return [number for number, whole in expected.items() if whole != sums.get(number, RangeDigest())]

    def _settle(self, engine: Engine, reads: Mapping[int, RangeRead], numbers: list[int]) -> str:
        """I/O: compares the keys of some ranges twice, and records what differs. Returns the first position."""
        groups = 1 + sum(reads[number].sum.documents for number in numbers) // _DOCUMENTS_OF_A_GROUP
        at = operation_time(self.client)
        first = self._differences(engine, numbers, groups, at)

        def again() -> Rows:
            rows = self._differences(engine, numbers, groups, operation_time(self.client))
            if self.source.collection is None and self._has_come():
                raise RetriableError(
                    f"{self.namespace} was created while it was compared", next_step="strandline reconcile, again"
                )
            return rows

        with self.source.translate_errors():
            engine.settle(first, again, self._own())
        passing = self._own_rows().where(("confirmed", "=", False)).aggregate(rows=("count", "key"))
        if temporary := self.ctx.tables.query(passing)[0]["rows"]:
            _log.info("%s: %d differences were gone when they were checked again", self.namespace, temporary)
        return snapshot_position(*at)

    def _has_come(self) -> bool:
        return find_collection(self.client[self.namespace.db], self.namespace.collection) is not None

    def _differences(self, engine: Engine, numbers: list[int], groups: int, at: tuple[int, int]) -> Rows:
        """Return the lazy differences at cluster time *at*, as rows to record. Waits for silver."""
        self.catch_up.silver(self.catch_up.bronze(at), [self.namespace])
        through = snapshot_position(*at)
        silver = self._facts(engine, listing(self.source.bounds, numbers, through, self._after()), DOCUMENTS)
        both = silver.union(self.source.documents(engine, numbers, at)).grouped("key", groups)
        differences = both.map(comparing, DIFFERENCES)
        if self.source.numbers is not None:
            differences = differences.map(identified, DIFFERENCES)
        return self._report(differences, through, confirmed=False)

    def _report(self, differences: Rows, through: str, **constants: Any) -> Rows:
        """Return *differences* as rows of ``control.reconcile``."""
        facts = {
            **{column: value for column, _, value in self._own()},
            "at": self.at,
            "source": self.ctx.settings.source.name,
            "compared_at": through,
        }
        return differences.map(reporting(facts | constants), REPORT)

    def _own(self) -> list[Condition]:
        """Conditions on the rows of this comparison."""
        own = {"run_id": self.run_id, "db": self.namespace.db, "collection": self.namespace.collection}
        return [(column, "=", value) for column, value in own.items()]

    def _own_rows(self) -> Query:
        return Query(RECONCILE).where(*self._own())

    def repair(self, writer: BronzeAppender, fields: FieldPolicy) -> int:
        """Read differing documents again. Rows of the history are left out: no new READ corrects them.

        I/O: waits until the source's time is later than all rows that are repaired; reads the source; writes one commit
        to bronze, and the time of the repair to ``control.reconcile``.

        Returns:
            The number of differences that were repaired.
        """
        repairable = [*self._own(), ("confirmed", "=", True), ("kind", "<>", "history")]
        counts = Query(RECONCILE).where(*repairable).aggregate(rows=("count", "key"), newest=("max", "position"))
        (counted,) = self.ctx.tables.query(counts)
        if not counted["rows"]:
            return 0
        collection = self.source.collection
        uuid = None if collection is None else collection.uuid
        newest = counted["newest"] or BEFORE_ALL
        work = repairing(self.source.options, self.namespace, uuid, writer, fields, newest)
        self._by_engine(
            lambda engine: engine.append(writer.table, engine.report(repairable).map(work, SCHEMA)),
            only_spark=self.ctx.settings.capture_engine == "spark",
        )
        self.ctx.tables.update_rows(RECONCILE, {"repaired_at": datetime.now(UTC)}, *repairable)
        return int(counted["rows"])
