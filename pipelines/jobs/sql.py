"""Queries by layer names, for the command and for notebooks."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame

from pipelines.bronze.debezium import debezium_events
from pipelines.bronze.readable import with_json
from pipelines.gold.publish import load_graph
from pipelines.gold.query import Shown, query
from pipelines.jobs.context import JobContext
from pipelines.model.columns import bronze_table
from pipelines.model.tables import TableName


def run_sql(ctx: JobContext, statement: str) -> DataFrame:
    """``select … from silver.flights join gold.fleet_age …``; names are resolved in the lake of *ctx*, bronze shows documents as JSON.
    ``bronze.<source>_debezium`` and ``…_debezium_tombstones`` show its events as Debezium would.

    Raises:
        ConfigurationError: No SQL, or an unknown table (with the nearest name).
    """
    sql_dir = ctx.settings.gold.sql_dir
    return query(ctx.tables, load_graph(Path(sql_dir) if sql_dir else None), statement, {"bronze": with_json}, _as_debezium(ctx))


def _as_debezium(ctx: JobContext) -> dict[TableName, Shown]:
    bronze, source = bronze_table(ctx.settings.source.name), ctx.settings.source.name

    def events(tombstones: bool) -> DataFrame:
        return debezium_events(ctx.tables.read(bronze), prefix=source, tombstones=tombstones)

    if not ctx.tables.exists(bronze):
        return {}
    return {
        bronze_table(f"{source}_debezium"): partial(events, False),
        bronze_table(f"{source}_debezium_tombstones"): partial(events, True),
    }
