"""Time to recover the position from a small bronze table and from one 1,000 times larger. It should be equal."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.reads import ReadWatch
from strandline.bronze.spark_engine import SparkEngine
from strandline.bronze.writer import BronzeWriter
from strandline.io.tables.ddl import schema_of
from strandline.io.tables.spark_tables import Tables
from strandline.model.table_schemas import BRONZE_DDL, bronze_table
from strandline.model.tables import Lake

SOURCE, _IDENTITY = "bench", "bench"
_COLLECTIONS = 20
_FILES = 2  # per batch of 50,000 events
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
    """Size of a bronze table: *rows* in *batches*, one commit per batch."""

    rows: int
    batches: int


def sizes(rows: int) -> tuple[Size, Size]:
    """Return the sizes of both tables: 10,000 rows and *rows*.

    Both end equally many commits after the last log checkpoint, which is written every 100 commits.
    """
    return Size(10_000, 50), Size(rows, 50 + 100 * max(1, round(rows / 5_000_000)))


@dataclass(frozen=True)
class Recovered:
    """Recovery result: seconds per round, number of files of the table, and files read in the last round."""

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
    """Build both tables, then recover from each in turn. The first round is a warm-up and is not counted."""
    tables = [built(spark, folder / f"bronze-{size.rows}", size) for size in sizes(rows)]
    return measured(spark, tables, folder, rounds)


def built(spark: SparkSession, root: Path, size: Size) -> tuple[Path, Size]:
    """Create lake *root* with a bronze table of *size*. An existing lake is kept.

    Schema, table properties and file sizes are those of the real writer.
    """
    tables = Tables(spark, Lake(root=str(root)))
    if not root.exists():
        _writer(tables).open(_IDENTITY, None)
        for batch in range(1, size.batches + 1):
            first, last = ((batch - 1) * size.rows // size.batches, batch * size.rows // size.batches)
            tables.append(bronze_table(SOURCE), batch_rows(spark, batch, first, last))
    return root, size


def measured(spark: SparkSession, built: list[tuple[Path, Size]], folder: Path, rounds: int) -> list[Recovered]:
    """Recover *rounds* + 1 times from each table, in turn. The first round is not counted."""
    taken: dict[Path, list[tuple[float, ReadWatch]]] = {root: [] for root, _ in built}
    for number in range(rounds + 1):
        for root, size in built:
            taken[root].append(recovered(spark, root, folder / f"{root.name}-{number}", expected=size.batches))
    return [_summary(root, size, taken[root][1:]) for root, size in built]


def recovered(spark: SparkSession, root: Path, alias: Path, *, expected: int) -> tuple[float, ReadWatch]:
    """Measure one recovery. It uses a new symbolic link (*alias*), so Spark has nothing of the table in its cache.

    Raises:
        RuntimeError: The recovered batch is not the last batch.
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
    """Return rows *first* to *last* (exclusive) of inserts into twenty collections, as one batch."""
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
    columns["epoch"] = F.when(ends, F.lit(1))
    filled = [
        columns.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name)
        for field in schema_of(BRONZE_DDL).fields
    ]
    return spark.range(first, last, 1, _FILES).select(*filled)


def _writer(tables: Tables) -> BronzeWriter:
    opening = partial(SparkEngine.open, tables)
    return BronzeWriter(tables, SOURCE, "bench", lambda: time.time_ns() // 1000, open_engine=opening)


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
