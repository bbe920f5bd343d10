"""The guides to Databricks' own services, as far as they run without a workspace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bson.json_util
import pytest
import yaml
from databricks.bundles.synced_database_tables import SyncedDatabaseTable
from documents import ROOT, Page
from lakehouse import pipeline, with_silver
from pymongo.database import Database
from pyspark.pipelines.flow import AutoCdcFlow, Flow
from pyspark.pipelines.graph_element_registry import GraphElementRegistry, graph_element_registration_context
from pyspark.pipelines.output import Output
from pyspark.sql import SparkSession

from strandline.io.tables.table_store import CHANGE_FEED
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.table_schemas import bronze_table
from strandline.model.tables import TableName

Db = Database[dict[str, Any]]
PAGE = Page(ROOT / "docs" / "databricks-services.md")
ORDERS, HISTORY = TableName("silver", "orders"), TableName("silver", "orders_history")


class Pipeline(GraphElementRegistry):
    """Registry of the outputs and flows that a file of a declarative pipeline defines."""

    def __init__(self) -> None:
        self.outputs: list[Output] = []
        self.flows: dict[str, Flow] = {}
        self.cdc: list[AutoCdcFlow] = []

    def register_output(self, output: Output) -> None:
        self.outputs.append(output)

    def register_flow(self, flow: Flow) -> None:
        self.flows[flow.name] = flow

    def register_auto_cdc_flow(self, flow: AutoCdcFlow) -> None:
        self.cdc.append(flow)

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        raise AssertionError(f"{file_path}: {sql_text}")


@pytest.fixture
def ctx(spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path) -> JobContext:
    exact = {"mode": "change_streams_update_full_with_pre_image", "full_update_type": "post_image"}
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path / "lake", json_columns="stored", **exact)
    database.create_collection("orders", changeStreamPreAndPostImages={"enabled": True})
    return with_silver(ctx, history="scd2")


@pytest.fixture
def guide(spark: SparkSession, ctx: JobContext, database: Db) -> Iterator[str]:
    """The first guide, which names the test's bronze table and database."""
    spark.sql(f"CREATE TABLE guide_bronze USING delta LOCATION '{ctx.tables.lake.path(bronze_table('test'))}'")
    text = PAGE.blocks("python")[0].replace("main.shop_bronze.shop", "guide_bronze")
    yield text.replace("db = 'shop'", f"db = '{database.name}'")
    spark.sql("DROP TABLE guide_bronze")


def versions(rows: list[Any]) -> set[tuple[Any, ...]]:
    """The versions that SCD 2 makes of changes: key, start, end, document. A delete ends a version and begins none."""
    ordered = [row for _, row in sorted({(row["key"], row["position"]): row for row in rows}.items())]
    following = [*ordered[1:], None]
    return {
        (
            row["key"],
            row["position"],
            after["position"] if after is not None and after["key"] == row["key"] else None,
            row["after"],
        )
        for row, after in zip(ordered, following, strict=True)
        if row["op"] != "d"
    }


def test_the_changes_of_the_guide_are_the_versions_of_the_history_by_position(
    spark: SparkSession, ctx: JobContext, database: Db, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    database.orders.insert_many([{"_id": number, "total": number * 1.5} for number in range(5)])
    run_capture(ctx, once=True)
    defined = Pipeline()
    with graph_element_registration_context(defined):
        # Spark has AUTO CDC of type 1 only; Databricks has both
        exec(request.getfixturevalue("guide").replace("stored_as_scd_type=2", "stored_as_scd_type=1"), {})
    (cdc,) = defined.cdc
    assert (cdc.target, cdc.source) == ("orders_history", "order_changes")
    for number in range(2):
        database.orders.update_one({"_id": 1}, {"$set": {"total": number}})
        database.orders.update_one({"_id": 2}, {"$inc": {"total": 1.0}})
        database.orders.delete_one({"_id": number + 3})
        run_capture(ctx, once=True)
        frame = defined.flows["order_changes"].func()
        stream = frame.writeStream.format("delta").option("checkpointLocation", str(tmp_path / "checkpoint"))
        stream.trigger(availableNow=True).start(str(tmp_path / "changes")).awaitTermination()
    database.orders.insert_one({"_id": 3})  # again
    run_capture(ctx, once=True)
    defined.flows["order_changes"].func()
    stream.trigger(availableNow=True).start(str(tmp_path / "changes")).awaitTermination()
    run_silver(ctx)
    changes = spark.read.format("delta").load(str(tmp_path / "changes")).collect()
    kept = ctx.tables.read(HISTORY).where("NOT _deleted").collect()
    expected = {
        (row["_key"], row["_position"], row["_valid_to_position"], bson.decode(row["_document"])["_id"]) for row in kept
    }
    assert len(expected) == 10
    assert {
        (key, start, end, bson.json_util.loads(after)["_id"]) for key, start, end, after in versions(changes)
    } == expected


def test_the_synced_table_of_the_guide_is_a_resource_and_silver_has_what_it_needs(
    ctx: JobContext, database: Db
) -> None:
    (resource,) = yaml.safe_load(PAGE.blocks("yml")[0])["resources"]["synced_database_tables"].values()
    spec = SyncedDatabaseTable.from_dict(resource).spec
    assert (spec.scheduling_policy.value, spec.primary_key_columns) == ("TRIGGERED", ["_key"])
    database.orders.insert_many([{"_id": each} for each in (1, "1", 2.5, None, {"a": 1})])
    run_capture(ctx, once=True)
    run_silver(ctx)
    assert ctx.tables.properties(ORDERS)[CHANGE_FEED] == "true"
    keys = [row["_key"] for row in ctx.tables.read(ORDERS).collect()]
    assert (len(set(keys)), None in keys) == (5, False)
    assert "variant" not in ctx.tables.column_types(ORDERS).values()
