"""SQL queries on layer names (``silver.orders``), for the `strandline sql` command and for notebooks."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from strandline.bronze.debezium import debezium_events
from strandline.bronze.json_view import with_json
from strandline.bronze.transactions import transactions
from strandline.gold.query import VirtualTable, query
from strandline.gold.sql_files import load_graph
from strandline.io.delta_log.delta_rs_query import python_rows
from strandline.jobs.context import JobContext
from strandline.jobs.operations.sql_without_spark import BRONZE_VIEWS
from strandline.jobs.silver.named_tables import table_named, tables_of_collection
from strandline.model.deployment import IDENTITY_PROPERTY, replica_set_in
from strandline.model.table_schemas import bronze_table
from strandline.model.tables import TableName, history_of, quoted


def run_sql(ctx: JobContext, statement: str) -> DataFrame:
    """Return the result of a query such as ``select … from silver.flights join gold.fleet_age …``.

    Bronze shows documents as JSON. Additional views: ``bronze.<source>_debezium`` and ``…_debezium_tombstones`` (events
    in Debezium's format) and ``bronze.<source>_transactions`` (begin and end of each transaction).

    Raises:
        ConfigurationError: *statement* is not valid SQL, or a table is unknown. The error names the most similar table.
    """
    sql_dir = ctx.settings.gold.sql_dir
    graph = load_graph(Path(sql_dir) if sql_dir else None)
    names_of = partial(tables_of_collection, ctx.settings)
    return query(ctx.tables, graph, statement, {"bronze": with_json}, _bronze_views(ctx), names_of)


def rows_of(result: DataFrame, rows: int) -> list[dict[str, Any]]:
    """Return at most *rows* rows, with the values that `rows_without_spark` returns. I/O: Spark computes them."""
    variants = [field.name for field in result.schema if field.dataType.typeName() == "variant"]
    as_text = {name: F.to_json(quoted(name)) for name in variants}
    return python_rows(_with_nullable_fields(result.limit(rows).withColumns(as_text)).toArrow())


def _with_nullable_fields(result: DataFrame) -> DataFrame:
    """Return *result* with structs whose fields may be null: Arrow refuses a null struct with a field that may not."""
    if not any('"nullable":false' in field.dataType.json() for field in result.schema):
        return result
    schema = result.schema.json().replace('"nullable":false', '"nullable":true')
    return result.to(StructType.fromJson(json.loads(schema)))


def versions(ctx: JobContext, table: str) -> DataFrame:
    """Return every version of every document of a silver table, such as ``silver.flights``. Lazy.

    A version is valid from ``_valid_from`` until ``_valid_to`` (null: still valid). A table without a history has one
    version of each document: the current one.

    I/O: lists the tables of silver.

    Raises:
        ConfigurationError: The table does not exist.
    """
    silver = table_named(ctx, table)
    if ctx.tables.exists(history := history_of(silver)):
        return run_sql(ctx, f"SELECT * FROM silver.{quoted(history.name)}")
    times = "_cluster_time AS _valid_from, CAST(NULL AS TIMESTAMP) AS _valid_to"
    return run_sql(ctx, f"SELECT *, {times} FROM silver.{quoted(silver.name)}")


def _bronze_views(ctx: JobContext) -> dict[TableName, VirtualTable]:
    """Return the views on bronze by name; empty if bronze does not exist."""
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

    views: tuple[Callable[[DataFrame], DataFrame], ...] = (transactions, events, partial(events, tombstones=True))
    return {
        bronze_table(f"{source}_{name}"): partial(lambda view: view(ctx.tables.read(bronze)), view)
        for name, view in zip(BRONZE_VIEWS, views, strict=True)
    }
