"""SQL queries on layer names, answered by delta-rs: no JVM. Queries that it cannot answer are left to Spark."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any, Final

from strandline.errors import LakeUnavailable, one_line
from strandline.gold.checked_query import checked_query
from strandline.gold.datafusion_query import datafusion_sql
from strandline.gold.graph import Graph
from strandline.gold.pinned_inputs import quarantines_of, without_quarantined
from strandline.gold.spark_names import spark_sql
from strandline.gold.sql_files import load_graph
from strandline.gold.statement import Statement
from strandline.gold.view_files import NotTranslated
from strandline.io.delta_log.delta_rs_query import result
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.jobs.lake_context import tables_here
from strandline.jobs.silver.named_tables import tables_of_collection
from strandline.model.table_schemas import JSON_COLUMNS, bronze_table
from strandline.settings.configuration import Settings

_log: Final = logging.getLogger("strandline.sql")
BRONZE_VIEWS: Final = ("transactions", "debezium", "debezium_tombstones")
"""Ends of the names of the views on bronze."""


def rows_without_spark(settings: Settings, query: str, rows: int) -> list[dict[str, Any]] | None:
    """Return at most *rows* rows of a query such as ``select … from silver.orders``. None: only Spark answers it.

    I/O: reads tables in a folder of this machine or in S3; logs why Spark is needed.

    Raises:
        ConfigurationError: As `checked_query`, or a column does not exist.
    """
    if (tables := tables_here(settings)) is None:
        return None
    sql_dir = settings.gold.sql_dir
    graph = load_graph(Path(sql_dir) if sql_dir else None)
    virtual = [bronze_table(f"{settings.source.name}_{kind}") for kind in BRONZE_VIEWS]
    statement = checked_query(tables, graph, query, virtual, partial(tables_of_collection, settings))
    try:
        return _answer(tables, graph, statement, rows)
    except NotTranslated as reason:
        _log.info("starting Spark: %s", reason)
        return None


def _answer(tables: DeltaRsTables, graph: Graph, statement: Statement, rows: int) -> list[dict[str, Any]]:
    views = graph.inputs_of_views(statement)
    quarantines = quarantines_of(tables, views)
    inputs = list(dict.fromkeys([*graph.inputs(statement), *quarantines.values()]))
    if unreadable := [table for table in inputs if not tables.exists(table) or not tables.can_query(table)]:
        raise NotTranslated(f"only Spark reads {', '.join(map(str, unreadable))}")
    lake = tables.lake
    text = spark_sql(lake, graph, statement, without_quarantined(lake, quarantines), direct_source=lake.sql)
    names = {lake.path(table): f"t{number}" for number, table in enumerate(inputs)}
    types = {lake.path(table): tables.column_types(table) for table in inputs}
    is_bronze = any(table.layer == "bronze" for table in statement.tables())
    try:
        sql = datafusion_sql(text, types, names, rows=rows, computed=JSON_COLUMNS if is_bronze else ())
    except NotTranslated as reason:
        shown = str(reason)
        for table in inputs:
            shown = shown.replace(lake.sql(table), str(table))
        raise NotTranslated(" ".join(shown.split())) from None
    try:
        return result({names[lake.path(table)]: tables.folder(table).table(None) for table in inputs}, sql)
    except LakeUnavailable:
        raise
    except Exception as error:  # the library raises a bare Exception, also for what it does not implement
        raise NotTranslated(f"delta-rs does not answer ({one_line(error)})") from error
