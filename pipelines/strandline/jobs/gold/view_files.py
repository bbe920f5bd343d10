"""SQL files of gold views in a lake by path, which stores no views: written after every build."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from strandline.errors import one_line
from strandline.gold.graph import Graph
from strandline.gold.pinned_inputs import quarantines_of
from strandline.gold.results import GoldResult
from strandline.gold.view_files import DUCKDB, FOLDER, SPARK, NotTranslated, duckdb_file, name_in, spark_file
from strandline.io.delta_log.text_files import mirror_texts
from strandline.jobs.lake_context import PipelineContext, tables_here
from strandline.model.tables import TableName

_log = logging.getLogger("strandline.gold")


def write_view_files(ctx: PipelineContext, graph: Graph, results: Sequence[GoldResult]) -> None:
    """Write the files of the views that were built, and remove those of views that are no more.

    In a lake that this process does not reach without Spark, nothing is written.

    I/O: reads properties of quarantine tables; writes files into ``gold/_views`` of the lake. A failure is a warning:
    gold itself is complete.
    """
    delta_rs = tables_here(ctx.settings)
    if delta_rs is None:
        return
    texts: dict[str, str] = {}
    views = {name for name, node in graph.nodes.items() if node.materialized == "view"}
    built = [graph.nodes[result.name] for result in results if result.status == "built" and result.name in views]
    quarantines = quarantines_of(ctx.tables, {table for node in built for table in graph.inputs(node.statement)})
    untranslated = set()
    for node in built:
        reason = ""
        try:
            types = _types(ctx, [*graph.inputs(node.statement), *quarantines.values()])
            texts[node.name + DUCKDB] = duckdb_file(delta_rs.lake, graph, node, quarantines, types)
        except NotTranslated as error:
            reason = str(error)
            untranslated.add(node.name + DUCKDB)
            _log.info(
                "gold.%s has no DuckDB file: %s; read it with Spark, or use materialized: table", node.name, reason
            )
        texts[node.name + SPARK] = spark_file(delta_rs.lake, graph, node, quarantines, reason)
    try:
        mirror_texts(
            delta_rs.lake.path(FOLDER),
            texts,
            delta_rs.options if delta_rs.lake.in_object_store else None,
            lambda file: file in untranslated or name_in(file) not in {"", *views},
        )
    except OSError as error:
        _log.warning("the SQL files of the gold views are not written (%s)", one_line(error))


def _types(ctx: PipelineContext, tables: Iterable[TableName]) -> dict[TableName, dict[str, str]]:
    """I/O: reads the schemas of *tables*."""
    return {table: ctx.tables.column_types(table) for table in tables}
