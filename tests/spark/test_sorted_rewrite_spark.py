"""A sorted rewrite as Spark sees it: the same rows, no changes, and a table that it reads and writes as before."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
from chispa import assert_df_equality
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from strandline.bronze.bronze_properties import PROPERTIES
from strandline.bronze.data_files import write_rows
from strandline.bronze.envelope import BatchEnd, Stamp, control_table, filled
from strandline.io.delta_log.local_folder import LocalFolder
from strandline.io.delta_log.log_commit import put_commit
from strandline.io.delta_log.sorted_rewrite import sort_files
from strandline.io.tables.delta_schema import delta_schema
from strandline.model.table_schemas import BRONZE_DDL


def append(table: Path, version: int, rows: pa.Table) -> None:
    file = write_rows(LocalFolder(table), rows)
    add = {
        "path": file.name,
        "partitionValues": {},
        "size": file.size,
        "modificationTime": file.modified_ms,
        "dataChange": True,
        "stats": file.statistics,
    }
    assert put_commit(LocalFolder(table), version, [{"add": add}])


def events(first: int) -> pa.Table:
    columns: dict[str, object] = {
        "batch": [first] * 20,
        "position": [f"{number:08x}" for number in range(first, first + 20)],
        "op": ["c"] * 20,
        "db": ["shop"] * 20,
        "collection": [f"c{number % 4}" for number in range(20)],
        "cluster_time": pa.array([-(10**12), None, *[5] * 18], pa.timestamp("us", tz="UTC")),
        "update_description": [{"removed_fields": ["a", None], "truncated_arrays": []}, *[None] * 19],
        "envelope": [bytes([number]) for number in range(20)],
    }
    return filled(columns, 20)


def read(spark: SparkSession, table: Path, **options: object) -> DataFrame:
    return spark.read.format("delta").options(**options).load(str(table))  # type: ignore[arg-type]  # why: any value


def test_spark_reads_the_same_rows_and_no_changes(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "bronze"
    DeltaTable.create(str(table), delta_schema(BRONZE_DDL), configuration=PROPERTIES, raise_if_key_not_exists=False)
    append(table, 1, events(0))
    append(table, 2, control_table(Stamp("s", "w", 5), batch=1, end=BatchEnd(None, None)))
    read(spark, table, versionAsOf=1).write.format("delta").mode("append").save(str(table))
    before = read(spark, table, versionAsOf=3)
    assert before.count() == 41

    assert sort_files(LocalFolder(table)) == (len(before.inputFiles()), 1)
    append(table, 5, events(100))

    after = read(spark, table, versionAsOf=4)
    assert len(after.inputFiles()) == 1
    assert_df_equality(after, before, ignore_row_order=True)
    changes = read(spark, table, readChangeFeed="true", startingVersion=1, endingVersion=5)
    assert {
        (row[0], row[1]): row[2] for row in changes.groupBy("_commit_version", "_change_type").count().collect()
    } == {
        (1, "insert"): 20,
        (2, "insert"): 1,
        (3, "insert"): 20,
        (5, "insert"): 20,
    }

    read(spark, table, versionAsOf=1).write.format("delta").mode("append").save(str(table))
    assert read(spark, table).count() == 81
    assert read(spark, table).where("collection = 'c1'").count() == 20
    newest = spark.sql(f"DESCRIBE HISTORY delta.`{table}`").where("version = 4").first()
    assert newest is not None
    assert newest["operation"] == "OPTIMIZE"
    assert json.loads(newest["operationParameters"]["sortedBy"]) == ["db", "collection", "position"]
    spark.sql(f"VACUUM delta.`{table}` RETAIN 200 HOURS")
    assert read(spark, table).count() == 81
    assert sort_files(LocalFolder(table)) is not None
    assert read(spark, table).count() == 81
