"""Queries by layer names, for the command and for notebooks."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame

from pipelines.bronze.readable import with_json
from pipelines.gold.publish import load_graph
from pipelines.gold.query import query
from pipelines.jobs.context import JobContext


def run_sql(ctx: JobContext, statement: str) -> DataFrame:
    """``select … from silver.flights join gold.fleet_age …``; names are resolved in the lake of *ctx*, bronze shows documents as JSON.

    Raises:
        ConfigurationError: No SQL, or an unknown table (with the nearest name).
    """
    sql_dir = ctx.settings.gold.sql_dir
    return query(ctx.tables, load_graph(Path(sql_dir) if sql_dir else None), statement, {"bronze": with_json})
