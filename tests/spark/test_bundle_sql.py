"""Spark runs the SQL of the alert and the dashboard, and the gold case of the project that `strandline init` writes."""

from __future__ import annotations

import re
from pathlib import Path

from databricks_bundle import Bundle
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from strandline.io.tables.ddl import schema_of
from strandline.io.tables.spark_tables import Tables
from strandline.jobs.context import JobContext
from strandline.jobs.gold.run_gold import check_gold
from strandline.model import table_schemas
from strandline.project.scaffold import Project, files_of, write_project
from strandline.settings.configuration import load_settings

_TABLE = re.compile(r"`[^`]+`\.`[^`]+_(bronze|control)`\.`?(\w+)`?")
_BUNDLE = Bundle(files_of(Project(catalog="main", warehouse="SQL")), "dev")


def over_views(spark: SparkSession, query: str) -> str:
    """*query* over temporary views, which are empty where none of the test's own stands."""
    for layer, name in _TABLE.findall(query):
        if not spark.catalog.tableExists(f"{layer}_{name}"):
            ddl = table_schemas.BRONZE_DDL if layer == "bronze" else getattr(table_schemas, f"{name.upper()}_DDL")
            spark.createDataFrame([], schema_of(ddl)).createOrReplaceTempView(f"{layer}_{name}")
    return _TABLE.sub(r"\1_\2", query)


def test_spark_runs_the_sql_of_the_alert_and_of_the_dashboard(spark: SparkSession) -> None:
    alert = _BUNDLE.resources["alerts"]["capture_late"]["query_text"]
    assert [row.seconds for row in spark.sql(over_views(spark, alert)).collect()] == [999_999_999]
    (name,) = {f"{layer}_{table}" for layer, table in _TABLE.findall(alert)}
    batch = F.lit(1).cast("bigint").alias("batch")
    captured_at = F.expr("current_timestamp() - INTERVAL 2 HOURS").alias("captured_at")
    spark.range(1).select(batch, captured_at).createOrReplaceTempView(name)
    assert [row.seconds // 60 for row in spark.sql(over_views(spark, alert)).collect()] == [120]
    spark.catalog.dropTempView(name)
    for dataset in _BUNDLE.resources["dashboards"]["operations"]["serialized_dashboard"]["datasets"]:
        rows = spark.sql(over_views(spark, "".join(dataset["queryLines"]))).collect()
        assert len(rows) == (1 if dataset["name"] == "lag" else 0), dataset["name"]


def test_the_gold_case_of_a_new_project_passes(spark: SparkSession, tables: Tables, tmp_path: Path) -> None:
    write_project(tmp_path, Project())
    results = check_gold(JobContext(load_settings("local", tmp_path / "conf"), spark, tables))
    assert [(result.node, result.difference) for result in results] == [("daily_orders", "")]
