"""From nothing to "position known", for a small bronze table and for one a thousand times as large: it should not matter."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.reads import ReadWatch
from pipelines.bronze.writer import BronzeWriter
from pipelines.io.ddl import schema_of
from pipelines.io.tables import Tables
from pipelines.model.table_schemas import BRONZE_DDL, bronze_table
from pipelines.model.tables import Lake

SOURCE, _IDENTITY = "bench", "bench"
_COLLECTIONS = 20
_FILES = 2  # of a batch of 50,000 events: one for each slice
_FILLS_STATED = (
    "batch",
    "position",
    "op",
    "operation_type",
    "db",
    "collection",
    "key",
    "document_size",
    "envelope",
    "writer",
)


@dataclass(frozen=True)
class Size:
    """A bronze table: *rows* in *batches* of one commit each."""

    rows: int
    batches: int


def sizes(rows: int) -> tuple[Size, Size]:
    """Ten thousand rows, and *rows*. Both are equally many commits behind the last checkpoint of the log, which comes every hundred."""
    return Size(10_000, 50), Size(rows, 50 + 100 * max(1, round(rows / 5_000_000)))


@dataclass(frozen=True)
class Recovered:
    """Seconds of each round; the table's files at the end, and those that one round read."""

    rows: int
    commits: int
    megabytes: float
    files: int
    seconds: tuple[float, ...]
    data_files_read: int
    log_files_read: int

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def compare(spark: SparkSession, folder: Path, *, rows: int, rounds: int) -> list[Recovered]:
    """I/O: builds both tables, then recovers from each in turn. The first round of each warms up and does not count."""
    tables = [built(spark, folder / f"bronze-{size.rows}", size) for size in sizes(rows)]
    return measured(spark, tables, folder, rounds)


def built(spark: SparkSession, root: Path, size: Size) -> tuple[Path, Size]:
    """I/O: the lake *root* with a bronze of that size, by the writer's own schema, properties and file sizes; one that is there stays."""
    tables = Tables(spark, Lake(root=str(root)))
    if not root.exists():
        _writer(tables).open(_IDENTITY, None)
        for batch in range(1, size.batches + 1):
            first, last = ((batch - 1) * size.rows // size.batches, batch * size.rows // size.batches)
            tables.append(bronze_table(SOURCE), batch_rows(spark, batch, first, last))
    return root, size


def measured(spark: SparkSession, built: list[tuple[Path, Size]], folder: Path, rounds: int) -> list[Recovered]:
    """I/O: recovers *rounds* + 1 times from each table, in turn."""
    taken: dict[Path, list[tuple[float, ReadWatch]]] = {root: [] for root, _ in built}
    for number in range(rounds + 1):
        for root, size in built:
            taken[root].append(recovered(spark, root, folder / f"{root.name}-{number}", expected=size.batches))
    return [_summary(root, size, taken[root][1:]) for root, size in built]


def recovered(spark: SparkSession, root: Path, alias: Path, *, expected: int) -> tuple[float, ReadWatch]:
    """I/O: one recovery. By a name (*alias*, a link) that the session has never heard, so nothing of the table is known to it.

    Raises:
        RuntimeError: It found another batch than the last one.
    """
    alias.symlink_to(root)
    writer = _writer(Tables(spark, Lake(root=str(alias))))
    table = root / "bronze" / SOURCE
    with ReadWatch(table, table / "_delta_log") as reads:
        started = time.perf_counter()
        last = writer.open(_IDENTITY, None)
        seconds = time.perf_counter() - started
    alias.unlink()
    if last is None or last.batch != expected:
        raise RuntimeError(f"batch {expected} was expected, and {last} was found")
    return seconds, reads


def batch_rows(spark: SparkSession, batch: int, first: int, last: int) -> DataFrame:
    """Rows *first* to *last* (exclusive) of a stream of insertions into twenty collections, as one batch."""
    number = F.col("id")
    position = F.concat(F.lpad(F.lower(F.hex(number)), 16, "0"), F.lit(":82"), F.upper(F.sha1(number.cast("STRING"))))
    known = [
        F.lit(batch).cast("BIGINT"),
        position,
        F.lit("c"),
        F.lit("insert"),
        F.lit("shop"),
        F.concat(F.lit("collection"), number % _COLLECTIONS),
        F.format_string('{"$oid": "%024x"}', number),
        F.lit(100),
        F.unhex(F.sha2(number.cast("STRING"), 512)),
        F.lit("bench"),
    ]
    columns: dict[str, Column] = dict(zip(_FILLS_STATED, known, strict=True))
    ends = number == last - 1
    columns["resume_token"] = F.when(
        ends, F.concat(F.lit('{"_data": "82'), F.upper(F.sha1(number.cast("STRING"))), F.lit('"}'))
    )
    columns["lineage"] = F.when(ends, F.lit(1))
    filled = [
        columns.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name)
        for field in schema_of(BRONZE_DDL).fields
    ]
    return spark.range(first, last, 1, _FILES).select(*filled)


def _writer(tables: Tables) -> BronzeWriter:
    return BronzeWriter(tables, SOURCE, "bench", lambda: time.time_ns() // 1000)


def _summary(root: Path, size: Size, rounds: list[tuple[float, ReadWatch]]) -> Recovered:
    table = root / "bronze" / SOURCE
    data = list(table.glob("*.parquet"))
    read = rounds[-1][1].files
    return Recovered(
        rows=size.rows,
        commits=size.batches,
        megabytes=sum(file.stat().st_size for file in data) / 1e6,
        files=len(data),
        seconds=tuple(seconds for seconds, _ in rounds),
        data_files_read=sum(file.parent == table for file in read),
        log_files_read=sum(file.parent != table for file in read),
    )
