"""Engines of `reconcile`: Spark, or threads of this process, run the functions that compare rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from strandline.io.delta_log.appended_rows import file_parts
from strandline.io.delta_log.parquet_file import Budget
from strandline.io.spark import column_functions as F
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.jobs.parallel_map import parallel_map
from strandline.model.merge_rule import MergeRule
from strandline.model.query import SPARK, Condition, Query
from strandline.model.shape import Shape
from strandline.model.table_schemas import RECONCILE
from strandline.model.tables import TableName
from strandline.silver.reconcile_diff import FACTS, Batches
from strandline.silver.typed_diff import COMPARED, stored_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from strandline.jobs.context import JobContext

_HELD_BYTES: Final = 256 << 20
"""Bytes of a result that this process holds: some two million rows of ranges that differ. Above, Spark compares."""
_SAME: Final = ("key", "kind", "position")
"""Columns by which a difference is the same in both comparisons."""
_SPARK_TYPES: Final = {
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.bool_(): "BOOLEAN",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.timestamp("us", tz="UTC"): "TIMESTAMP",
}
_REPORTED: Final = pa.schema({"identifier": pa.binary(), "key": pa.string(), "compared_at": pa.string()})


class Rows(Protocol):
    """Rows in parts. Lazy: nothing is read before `collect`, or before an engine appends them."""

    def map(self, work: Batches, schema: pa.Schema) -> Self:
        """Return the rows that *work* makes of each part."""

    def grouped(self, column: str, groups: int) -> Self:
        """Return the rows in new parts: rows with an equal *column* are in one part."""

    def union(self, other: Any) -> Self:
        """Return the rows of both."""

    def collect(self) -> pa.Table:
        """I/O: returns all rows. They fit the memory of this process."""


class Engine(Protocol):
    """Reads rows where they are, and writes ``control.reconcile``."""

    def ranges(self, numbers: Sequence[int], readers: int) -> Rows:
        """Return rows with a *number*, in as many parts as there are *readers*."""

    def facts(self, table: TableName, prefix: str) -> Rows:
        """Return the columns `FACTS` of a silver table. A table that is missing has no rows.

        Rows whose ``_key`` does not begin with *prefix* may be left out.
        """

    def typed(self, table: TableName, shape: Shape, prefix: str, *, living: bool) -> Rows:
        """Return what `checking` compares, of a silver or history table. *living*: without deleted rows.

        *prefix*: see `facts`.
        """

    def report(self, conditions: Sequence[Condition]) -> Rows:
        """Return the columns `_REPORTED` of the rows of ``control.reconcile`` that meet *conditions*."""

    def append(self, table: TableName, rows: Any) -> None:
        """I/O: appends *rows* to *table*, in one commit."""

    def settle(self, first: Any, again: Callable[[], Any], own: Sequence[Condition]) -> None:
        """I/O: appends the differences of the *first* comparison. Those that it finds *again* are confirmed.

        Args:
            own: Conditions that only rows of this comparison meet.
        """


@dataclass(frozen=True)
class SparkRows:
    """Rows of a DataFrame. The functions run on the executors."""

    frame: DataFrame

    def map(self, work: Batches, schema: pa.Schema) -> SparkRows:
        return SparkRows(
            self.frame.mapInArrow(work, ", ".join(f"{field.name} {spark_type(field.type)}" for field in schema))
        )

    def grouped(self, column: str, groups: int) -> SparkRows:
        return SparkRows(self.frame.repartition(groups, column))

    def union(self, other: SparkRows) -> SparkRows:
        return SparkRows(self.frame.unionByName(other.frame))

    def collect(self) -> pa.Table:
        return self.frame.toArrow()


def spark_type(kind: pa.DataType) -> str:
    """Return the type as Spark writes it."""
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(f'{field.name}: {spark_type(field.type)}' for field in kind)}>"
    return f"ARRAY<{spark_type(kind.value_type)}>" if pa.types.is_list(kind) else _SPARK_TYPES[kind]


@dataclass(frozen=True)
class SparkEngine:
    """Spark reads every place and every table."""

    ctx: JobContext

    def ranges(self, numbers: Sequence[int], readers: int) -> SparkRows:
        frame = self.ctx.spark.createDataFrame([(number,) for number in numbers], "number INT")
        return SparkRows(frame.repartition(max(1, min(readers, len(numbers)))))

    def facts(self, table: TableName, prefix: str) -> SparkRows:
        if not self.ctx.tables.exists(table):
            ddl = "_key STRING, _position STRING, _deleted BOOLEAN, _document BINARY"
            return SparkRows(self.ctx.spark.createDataFrame([], ddl))
        return SparkRows(_with_prefix(self.ctx.tables.read(table), prefix).select(*FACTS))

    def typed(self, table: TableName, shape: Shape, prefix: str, *, living: bool) -> SparkRows:
        rows = _with_prefix(self.ctx.tables.read(table), prefix)
        return SparkRows(stored_rows(rows.where(~F.col("_deleted")) if living else rows, shape))

    def report(self, conditions: Sequence[Condition]) -> SparkRows:
        rows = self.ctx.tables.read(RECONCILE).where(SPARK.where((condition,) for condition in conditions))
        return SparkRows(rows.select(*_REPORTED.names))

    def append(self, table: TableName, rows: SparkRows) -> None:
        self.ctx.tables.append(table, rows.frame)

    def settle(self, first: SparkRows, again: Callable[[], SparkRows], own: Sequence[Condition]) -> None:
        self.append(RECONCILE, first)
        if self.report(own).frame.isEmpty():
            return
        among = " AND ".join(f"t.{SPARK.condition(condition)}" for condition in own)
        rule = MergeRule(_SAME).update([], {"confirmed": "true"})
        self.ctx.tables.merge(RECONCILE, again().frame, rule, among=among)


def _with_prefix(rows: DataFrame, prefix: str) -> DataFrame:
    return rows.where(F.col("_key").startswith(prefix)) if prefix else rows


Part = Callable[[], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class LocalRows:
    """Rows that threads of this process read, some megabytes at a time."""

    parts: Sequence[Part]
    schema: pa.Schema
    threads: int

    def map(self, work: Batches, schema: pa.Schema) -> LocalRows:
        return LocalRows([partial(_mapped, work, part) for part in self.parts], schema, self.threads)

    def grouped(self, column: str, groups: int) -> LocalRows:  # noqa: ARG002  # why: the port's; all rows are one group
        return replace(self, parts=[lambda: iter(self.collect().to_batches())])

    def union(self, other: LocalRows) -> LocalRows:
        return replace(self, parts=[*self.parts, *other.parts], threads=max(self.threads, other.threads))

    def collect(self) -> pa.Table:
        """I/O: returns all rows. Raises TooLarge if they have more than 256 MiB."""
        budget = Budget(_HELD_BYTES)

        def of_part(part: Part) -> list[pa.RecordBatch]:
            batches = []
            for batch in part():
                budget.spend(batch.nbytes)
                batches.append(batch)
            return batches

        with ThreadPoolExecutor(self.threads, thread_name_prefix="strandline-reconcile") as pool:
            batches = chain.from_iterable(parallel_map(pool, of_part, self.parts))
        return pa.Table.from_batches(batches, self.schema)


def _mapped(work: Batches, part: Part) -> Iterator[pa.RecordBatch]:
    return work(part())


@dataclass(frozen=True)
class LocalEngine:
    """This process reads the files of the tables. It raises `ONLY_SPARK` where only Spark can, before it writes."""

    tables: DeltaRsTables

    def ranges(self, numbers: Sequence[int], readers: int) -> LocalRows:
        schema = pa.schema({"number": pa.int32()})
        shares = [share for reader in range(readers) if (share := numbers[reader::readers])]
        batches = [pa.RecordBatch.from_arrays([pa.array(share, pa.int32())], schema=schema) for share in shares]
        return LocalRows([partial(iter, [batch]) for batch in batches], schema, readers)

    def facts(self, table: TableName, prefix: str) -> LocalRows:
        return self._rows(table, FACTS, prefix) if self.tables.exists(table) else LocalRows([], pa.schema([]), 1)

    def typed(self, table: TableName, shape: Shape, prefix: str, *, living: bool) -> LocalRows:
        names = [*COMPARED, *(name for name, _ in shape.columns())]
        rows = self._rows(table, [*names, "_deleted"] if living else names, prefix)
        return rows.map(_living, pa.schema(list(rows.schema)[:-1])) if living else rows

    def report(self, conditions: Sequence[Condition]) -> LocalRows:
        rows = self.tables.query(Query(RECONCILE).select(*_REPORTED.names).where(*conditions))
        return LocalRows([partial(iter, pa.Table.from_pylist(rows, _REPORTED).to_batches())], _REPORTED, 1)

    def append(self, table: TableName, rows: LocalRows) -> None:
        if not self.tables.can_write(table):
            raise DeltaError(f"only Spark writes {table}")
        self.tables.append_rows(table, rows.collect())

    def settle(self, first: LocalRows, again: Callable[[], LocalRows], own: Sequence[Condition]) -> None:  # noqa: ARG002  # why: the port's; the rows are not written yet
        rows = first.collect()
        if rows.num_rows:
            lasting = set(_identities(again().collect()))
            is_confirmed = pa.array([identity in lasting for identity in _identities(rows)])
            place = rows.schema.get_field_index("confirmed")
            self.tables.append_rows(RECONCILE, rows.set_column(place, "confirmed", is_confirmed))

    def _rows(self, table: TableName, columns: Sequence[str], prefix: str) -> LocalRows:
        if (files := self.tables.data_files(table, prefix)) is None:
            raise DeltaError(f"only Spark reads {table}")
        schema = pa.schema([files.schema.field(name) for name in columns])
        parts = [partial(file_parts, self.tables.folder(table), path, schema) for path in files.paths]
        return LocalRows(parts, schema, pa.cpu_count())


def _living(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.filter(pc.invert(batch["_deleted"])).drop_columns(["_deleted"])


def _identities(rows: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(rows[name].to_pylist() for name in _SAME), strict=True)
