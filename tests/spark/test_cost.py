"""Costs that must not depend on a table's size.

Measured in files read, because seconds prove nothing on a busy machine.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bench.orders import Orders
from bench.reads import ReadWatch
from bench.recovery import SOURCE, Size, batch_rows, built, measured, recovered
from strandline.io.tables.spark_tables import Tables
from strandline.jobs.silver.collection import SilverResult
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.table_schemas import bronze_table
from strandline.model.tables import Lake

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="inotify, which counts the files that are read, is Linux's"
)


@pytest.mark.long
def test_recovery_reads_as_many_files_of_a_long_bronze_as_of_a_short_one(spark: SparkSession, tmp_path: Path) -> None:
    root, size = built(spark, tmp_path / "lake", Size(60, batches=6))
    tables, table = Tables(spark, Lake(root=str(root))), bronze_table(SOURCE)

    def data_files_read(name: str, batch: int) -> int:
        _, reads = recovered(spark, root, tmp_path / name, expected=batch)
        return sum(file.parent.name == SOURCE for file in reads.files)

    (short,) = measured(spark, [(root, size)], tmp_path, rounds=1)
    assert (short.files, short.data_files_read) == (12, 2), "the newest batch, and statistics of all others"
    assert short.log_files_read >= 7  # six batches and the creation, in a log without a checkpoint
    for batch in range(7, 13):
        tables.append(table, batch_rows(spark, batch, batch * 10, batch * 10 + 10))
    assert data_files_read("long", 12) == short.data_files_read
    nothing = {name: F.lit(None) for name in ("batch", "resume_token", "epoch")}
    for chunk in range(3):  # of a snapshot that lands while the stream is quiet
        tables.append(table, batch_rows(spark, 0, chunk * 10, chunk * 10 + 10).withColumns(nothing).coalesce(1))
    assert data_files_read("chunks", 12) == short.data_files_read
    # what a RESTORE left of an older epoch: the ends of the newest epoch are read, and no other file
    tables.append(table, batch_rows(spark, 50, 500, 510).coalesce(1))
    tables.append(table, batch_rows(spark, 13, 600, 610).withColumn("epoch", F.lit(2)).coalesce(1))
    assert data_files_read("epoch", 13) == 2


@pytest.mark.long
@pytest.mark.parametrize("engine", ["auto", "spark"])
def test_silver_reads_only_the_files_that_may_hold_a_changed_key(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Literal["auto", "spark"]
) -> None:
    monkeypatch.setattr("bench.orders._ROWS_OF_A_FILE", 100)
    orders = Orders.built(spark, tmp_path / "lake", 401, engine=engine)

    def present() -> set[Path]:
        table = spark.read.format("delta").load(str(orders.folder))
        return {Path(unquote(urlsplit(file).path)) for file in table.inputFiles()}

    assert len(present()) == 6  # order 0, and 400 others in five

    def changed(*numbers: int) -> tuple[SilverResult, int]:
        orders.change(numbers)
        files = present()
        with ReadWatch(*{file.parent for file in files}) as reads:
            (result,) = run_silver(orders.ctx)
        return result, len(reads.files & files)

    if engine == "spark":  # more keys than Spark takes in a list: it compares with the smallest and the largest one
        with monkeypatch.context() as few:
            few.setattr("strandline.silver.key_filter.MAX_LISTED_KEYS", 1)
            result, read = changed(350, 370, 390)
        assert (result.inserted, result.updated, read) == (0, 3, 1)
    result, read = changed(150)
    assert (result.inserted, result.updated, read) == (0, 1, 1)
    result, read = changed(20, 380)
    assert (result.inserted, result.updated, read) == (0, 2, 2)
    result, read = changed(9_000)
    assert (result.inserted, result.updated, read) == (1, 0, 0)
