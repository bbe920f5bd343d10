"""Run queries that name tables by layer."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame

from strandline.errors import ConfigurationError, one_line
from strandline.gold.checked_query import NamesOf, checked_query, no_names
from strandline.gold.graph import Graph
from strandline.gold.pinned_inputs import quarantines_of, without_quarantined
from strandline.gold.spark_names import spark_sql
from strandline.gold.statement import Statement
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
    names_of: NamesOf = no_names,
) -> DataFrame:
    """Run one query whose tables are named by layer: ``select * from gold.on_time_performance join silver.airlines …``.

    I/O: reads tables; creates temporary views; writes no table. Rejects any statement that is not a query.

    A gold view of a folder lake is expanded from its SQL file and leaves out rows in quarantine. A silver table that
    the query names itself includes them.

    Args:
        readers: Transformation of the tables of a layer before the query reads them. Other layers are read unchanged.
        virtual_tables: Rows for names without a table. An existing table of the same name takes precedence.
        names_of: As for `checked_query`.

    Raises:
        ConfigurationError: As `checked_query`, or Spark rejects the query (with the first line of its error).
    """
    statement = checked_query(tables, graph, sql, virtual_tables or (), names_of)
    inline = tables.lake.by_path
    virtual = {
        table: rows
        for table, rows in (virtual_tables or {}).items()
        if table in statement.tables() and not tables.exists(table)
    }
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
