"""Debezium's view of a bronze table that was captured from a real server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lakehouse import pipeline
from pymongo.database import Database
from pyspark.sql import SparkSession

from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.operations.sql import rows_of, run_sql


# scenario: B16
def test_the_view_writes_the_json_of_the_settings_and_names_the_replica_set(
    spark: SparkSession, mongo_uri: str, database: Database[dict[str, Any]], tmp_path: Path
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, json_serialization_mode="strict")
    database.orders.insert_one({"_id": {"n": 10.0}, "price": 2.5})
    run_capture(ctx, once=True)
    replica_set = database.client.admin.command("hello")["setName"]
    found = run_sql(ctx, "select id, after, source.rs as rs from bronze.test_debezium").collect()
    (row,) = rows_of(run_sql(ctx, "select * from bronze.test_debezium"), 10)
    assert (row["before"], row["transaction"], row["source"]["rs"]) == (None, None, replica_set)
    assert [tuple(row) for row in found] == [('{"n": 10.0}', '{"_id": {"n": 10.0},"price": 2.5}', replica_set)]
