"""Tenants: databases of one test whose collections are one silver table, and that table without Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import bson
from lakehouse import settings_for, tables_of
from pymongo import MongoClient
from pyspark.sql import SparkSession
from spark_refused import capture_without_spark, lake_without_spark

from strandline.jobs.context import JobContext
from strandline.jobs.lake_context import LazyContext
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.tables import TableName
from strandline.settings.configuration import Settings

Client = MongoClient[dict[str, Any]]
ORDERS: Final = TableName("silver", "orders")


class Tenants:
    """Databases of one test, whose collections ``orders`` are one table."""

    def __init__(self, client: Client, name: str) -> None:
        self.client, self.prefix = client, f"{name}_"

    def __getitem__(self, tenant: str) -> Any:
        return self.client[self.prefix + tenant].orders

    def settings(self, uri: str, root: Path, **silver: Any) -> Settings:
        databases = {"scope": "deployment", "target": None, "database_include_list": (f"{self.prefix}.*",)}
        settings = settings_for(uri, "", root, **databases)
        tables = {"orders": {"from": rf"{self.prefix}(?P<tenant>.*)\.orders"}}
        own = {**settings.silver.model_dump(), "tables": tables, **silver}
        return settings.model_copy(update={"silver": settings.silver.model_validate(own)})

    def documents(self) -> set[tuple[str, bytes]]:
        """Return the documents of every tenant."""
        names = [name for name in self.client.list_database_names() if name.startswith(self.prefix)]
        return {
            (name.removeprefix(self.prefix), bson.encode(document))
            for name in names
            for document in self.client[name].orders.find()
        }

    def drop(self) -> None:
        for name in self.client.list_database_names():
            if name.startswith(self.prefix):
                self.client.drop_database(name)


def rows(ctx: LazyContext, table: TableName = ORDERS) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = ctx.tables.folder(table).table().to_pyarrow_table().to_pylist()
    return content


def live(ctx: LazyContext) -> list[tuple[str, bytes]]:
    return [(row["tenant"], row["_document"]) for row in rows(ctx) if not row["_deleted"]]


def assert_equal(ctx: LazyContext, tenants: Tenants) -> None:
    present, documents = live(ctx), tenants.documents()
    assert (len(present), set(present)) == (len(documents), documents)


def by_both(spark: SparkSession, settings: Settings) -> LazyContext:
    by_spark = JobContext(settings, spark, tables_of(spark, settings.lake_location, settings))
    return replace(lake_without_spark(settings), with_spark=lambda: by_spark)


def land(ctx: LazyContext) -> None:
    capture_without_spark(ctx)
    run_silver(ctx)
