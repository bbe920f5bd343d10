"""Answers queries that name tables by layer."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame

from pipelines.errors import ConfigurationError, one_line
from pipelines.gold.graph import Graph
from pipelines.gold.pinned_inputs import quarantines_of, visible
from pipelines.gold.spark_names import spark_sql
from pipelines.gold.statement import Statement, nearest, parse_statement
from pipelines.io.tables import Tables
from pipelines.model.tables import TableName

Reader = Callable[[DataFrame], DataFrame]
Shown = Callable[[], DataFrame]


def query(
    tables: Tables,
    graph: Graph,
    sql: str,
    readers: Mapping[str, Reader] | None = None,
    shown: Mapping[TableName, Shown] | None = None,
) -> DataFrame:
    """Run one query whose tables are named by layer: ``select * from gold.on_time_performance join silver.airlines …``.

    Args:
        readers: By layer, how its tables look to a query; a layer without one shows them as they are.
        shown: Names that are no tables, and what they show. A table of the name goes before.

    I/O: reads only; a statement that is no query is refused. A gold view of a folder lake is expanded from its SQL file, and does not
    show rows in quarantine; a silver table that the query names itself does.

    Raises:
        ConfigurationError: Not one query, a table that is not there (with the nearest name), or Spark refuses it (its own first line).
    """
    statement, problems = parse_statement(sql)
    if problems or statement is None:
        text = "; ".join(f"line {problem.line}: {problem.text}" for problem in problems)
        raise ConfigurationError(text, next_step="correct the query")
    inline = tables.lake.by_path
    read = graph.inputs(statement) if inline else list(statement.tables())
    missing = [table for table in read if not tables.exists(table)]
    shown = {table: show for table, show in (shown or {}).items() if table in missing}
    missing = [table for table in missing if table not in shown]
    if missing:
        known = {str(table) for layer in {item.layer for item in missing} for table in _known(tables, graph, layer)}
        text = "; ".join(f"there is no {table}{nearest(str(table), known)}" for table in missing)
        raise ConfigurationError(text, next_step="correct the name, or build the table first")
    stand_ins = _stand_ins(tables, graph, statement, readers or {}, shown)
    through_views = visible(tables.lake, quarantines_of(tables, graph.inputs_of_views(statement) if inline else ()))
    resolved = spark_sql(
        tables.lake,
        graph,
        statement,
        through_views,
        own=lambda table: stand_ins.get(table) or tables.lake.sql(table),
        inline=inline,
    )
    try:
        rows = tables.spark.sql(resolved)
        _ = rows.schema  # a remote session has not looked at the query yet
    except (ParseException, AnalysisException) as error:
        raise ConfigurationError(one_line(error), next_step="correct the query") from error
    return rows


def _stand_ins(
    tables: Tables, graph: Graph, statement: Statement, readers: Mapping[str, Reader], shown: Mapping[TableName, Shown]
) -> dict[TableName, str]:
    """Temporary views over the tables of *statement* whose layer has a reader; a view cannot travel in time, so such tables stay."""
    views: dict[TableName, str] = {}
    travelling = {reference.table for reference in statement.references if reference.travels}
    for table in statement.tables():
        if table in shown:
            rows = shown[table]()
        elif table not in travelling and (reader := readers.get(table.layer)) is not None and graph.view(table) is None:
            rows = reader(tables.read(table))
        else:
            continue
        views[table] = f"strandline_{table.layer}_{uuid.uuid4().hex}"
        rows.createTempView(views[table])
    return views


def _known(tables: Tables, graph: Graph, layer: str) -> list[TableName]:
    return tables.names(layer) + [node.table for node in graph.nodes.values() if layer == "gold"]
