"""Run queries that name tables by layer."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame

from strandline.errors import ConfigurationError, one_line
from strandline.gold.graph import Graph
from strandline.gold.pinned_inputs import quarantines_of, without_quarantined
from strandline.gold.spark_names import spark_sql
from strandline.gold.statement import Statement, parse_statement, suggestion
from strandline.io.tables.spark_tables import Tables
from strandline.model.tables import TableName

Reader = Callable[[DataFrame], DataFrame]
VirtualTable = Callable[[], DataFrame]


def query(
    tables: Tables,
    graph: Graph,
    sql: str,
    readers: Mapping[str, Reader] | None = None,
    virtual_tables: Mapping[TableName, VirtualTable] | None = None,
) -> DataFrame:
    """Run one query whose tables are named by layer: ``select * from gold.on_time_performance join silver.airlines …``.

    I/O: reads tables; creates temporary views; writes no table. Rejects any statement that is not a query.

    A gold view of a folder lake is expanded from its SQL file and leaves out rows in quarantine. A silver table that
    the query names itself includes them.

    Args:
        readers: Transformation of the tables of a layer before the query reads them. Other layers are read unchanged.
        virtual_tables: Rows for names without a table. An existing table of the same name takes precedence.

    Raises:
        ConfigurationError: Not exactly one query; a missing table (with the nearest name); or Spark rejects the query
            (with the first line of its error).
    """
    statement, problems = parse_statement(sql)
    if problems or statement is None:
        text = "; ".join(f"line {problem.line}: {problem.text}" for problem in problems)
        raise ConfigurationError(text, next_step="correct the query")
    inline = tables.lake.by_path
    inputs = graph.inputs(statement) if inline else list(statement.tables())
    missing = [table for table in inputs if not tables.exists(table)]
    virtual = {table: rows for table, rows in (virtual_tables or {}).items() if table in missing}
    missing = [table for table in missing if table not in virtual]
    if missing:
        candidates = {
            str(table) for layer in {item.layer for item in missing} for table in _candidates(tables, graph, layer)
        }
        text = "; ".join(f"there is no {table}{suggestion(str(table), candidates)}" for table in missing)
        raise ConfigurationError(text, next_step="correct the name, or build the table first")
    temporary_views = _temporary_views(tables, graph, statement, readers or {}, virtual)
    view_source = without_quarantined(
        tables.lake, quarantines_of(tables, graph.inputs_of_views(statement) if inline else ())
    )
    resolved = spark_sql(
        tables.lake,
        graph,
        statement,
        view_source,
        direct_source=lambda table: temporary_views.get(table) or tables.lake.sql(table),
        inline=inline,
    )
    try:
        rows = tables.spark.sql(resolved)
        _ = rows.schema  # forces the analysis: a Spark Connect session is lazy
    except (ParseException, AnalysisException) as error:
        raise ConfigurationError(one_line(error), next_step="correct the query") from error
    return rows


def _temporary_views(
    tables: Tables,
    graph: Graph,
    statement: Statement,
    readers: Mapping[str, Reader],
    virtual: Mapping[TableName, VirtualTable],
) -> dict[TableName, str]:
    """Create temporary views for virtual tables and for tables whose layer has a reader. Return the view by table.

    A table that the query reads at an older version is left out, because a view does not support time travel.
    """
    views: dict[TableName, str] = {}
    versioned = {reference.table for reference in statement.references if reference.is_versioned}
    for table in statement.tables():
        if table in virtual:
            rows = virtual[table]()
        elif table not in versioned and (reader := readers.get(table.layer)) is not None and graph.view(table) is None:
            rows = reader(tables.read(table))
        else:
            continue
        views[table] = f"strandline_{table.layer}_{uuid.uuid4().hex}"
        rows.createTempView(views[table])
    return views


def _candidates(tables: Tables, graph: Graph, layer: str) -> list[TableName]:
    return tables.names(layer) + [node.table for node in graph.nodes.values() if layer == "gold"]
