"""Queries by layer names, for the command and for notebooks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame

from pipelines.bronze.debezium import debezium_events
from pipelines.bronze.json_view import with_json
from pipelines.bronze.transactions import transactions
from pipelines.gold.publish import load_graph
from pipelines.gold.query import VirtualTable, query
from pipelines.jobs.context import JobContext
from pipelines.model.deployment import IDENTITY_PROPERTY, replica_set_in
from pipelines.model.table_schemas import bronze_table
from pipelines.model.tables import TableName


def run_sql(ctx: JobContext, statement: str) -> DataFrame:
    """``select … from silver.flights join gold.fleet_age …``; names are resolved in the lake of *ctx*, bronze shows documents as JSON.
    ``bronze.<source>_debezium`` and ``…_debezium_tombstones`` show its events as Debezium would, ``…_transactions`` where each transaction
    begins and ends.

    Raises:
        ConfigurationError: No SQL, or an unknown table (with the nearest name).
    """
    sql_dir = ctx.settings.gold.sql_dir
    return query(
        ctx.tables, load_graph(Path(sql_dir) if sql_dir else None), statement, {"bronze": with_json}, _shown(ctx)
    )


def versions(ctx: JobContext, table: str) -> DataFrame:
    """Every known version of every document of a silver table (``silver.flights``), each in force from ``_valid_from`` until ``_valid_to``
    (null: now). That is its history; of a table that keeps none, one version is known: the present one.

    I/O: lists silver; lazy otherwise.

    Raises:
        ConfigurationError: There is no such table.
    """
    if f"{table}_history" in map(str, ctx.tables.names("silver")):
        return run_sql(ctx, f"SELECT * FROM {table}_history")
    return run_sql(ctx, f"SELECT *, _cluster_time AS _valid_from, CAST(NULL AS TIMESTAMP) AS _valid_to FROM {table}")


def _shown(ctx: JobContext) -> dict[TableName, VirtualTable]:
    """Names that are no tables, and what they show of bronze."""
    source = ctx.settings.source.name
    bronze = bronze_table(source)
    if not ctx.tables.exists(bronze):
        return {}

    def events(rows: DataFrame, *, tombstones: bool = False) -> DataFrame:
        identity = ctx.tables.properties(bronze).get(IDENTITY_PROPERTY, "")
        mode = ctx.settings.capture.json_serialization_mode
        return debezium_events(
            rows, prefix=source, tombstones=tombstones, json_mode=mode, replica_set=replica_set_in(identity)
        )

    views: dict[str, Callable[[DataFrame], DataFrame]] = {
        "transactions": transactions,
        "debezium": events,
        "debezium_tombstones": partial(events, tombstones=True),
    }
    return {
        bronze_table(f"{source}_{name}"): partial(lambda view: view(ctx.tables.read(bronze)), view)
        for name, view in views.items()
    }
