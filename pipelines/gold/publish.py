"""Builds gold in the lake, and answers queries that name tables by layer."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame

from pipelines.errors import ConfigurationError, StrandlineError
from pipelines.gold.graph import Graph, Node, parse
from pipelines.gold.statement import Statement, nearest, parse_statement
from pipelines.io.tables import Tables
from pipelines.model.tables import TableName

Reader = Callable[[DataFrame], DataFrame]

_CAUSE = re.compile(r"^(?:Caused by|): [\w.$]+(?:Exception|Error): (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class GoldResult:
    """What became of one node.

    *rows* is None for a view (nothing is written) and for what was not built. *reason* says why it was skipped or failed, in one line.
    """

    name: str
    materialized: str
    status: Literal["built", "skipped", "failed"]
    rows: int | None = None
    reason: str = ""
    seconds: float = 0.0


def load_graph(sql_dir: Path | None = None) -> Graph:
    """I/O: reads every ``*.sql`` file of *sql_dir*; without one, those that come with the package.

    Raises:
        ConfigurationError: The folder or a file cannot be read; or whatever `parse` finds.
    """
    folder = sql_dir or resources.files("pipelines.gold") / "sql"
    try:
        files = {
            (str(sql_dir / file.name) if sql_dir else file.name): file.read_text(encoding="utf-8-sig")
            for file in folder.iterdir()
            if file.name.endswith(".sql")
        }
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "a file is not UTF-8"
        raise ConfigurationError(f"gold's SQL files in {folder} cannot be read: {why}", next_step="correct gold.sql_dir") from None
    return parse(files)


def publish(tables: Tables, graph: Graph, names: Sequence[str] = ()) -> list[GoldResult]:
    """Build gold nodes in dependency order.

    I/O: reads the tables that the SQL names; writes one table (one commit each) or view per node. Idempotent: every build is a full one.

    Args:
        tables: The lake.
        graph: From `load_graph`.
        names: Only these and what they read in gold; empty: all.

    Returns:
        One result per node, in the order of building. A node that failed or whose table is missing blocks its descendants and nothing else.

    Effects on failure:
        A failed node keeps its last good rows. Calling again is safe.
    """
    results: list[GoldResult] = []
    blocked: dict[str, str] = {}
    for node in graph.order(names):
        started = time.monotonic()
        if node.name in blocked:
            result = GoldResult(node.name, node.materialized, "skipped", reason=f"blocked by gold.{blocked[node.name]}")
        else:
            result = _build(tables, graph, node, started)
            if result.status != "built":
                blocked |= {name: node.name for name in graph.descendants(node.name) if name not in blocked}
        results.append(result)
    return results


def query(tables: Tables, graph: Graph, sql: str, readers: Mapping[str, Reader] | None = None) -> DataFrame:
    """Run one query whose tables are named by layer: ``select * from gold.on_time_performance join silver.airlines …``.

    Args:
        readers: By layer, how its tables look to a query; a layer without one shows them as they are.

    I/O: reads only; a statement that is no query is refused. A gold view of a folder lake is expanded from its SQL file.

    Raises:
        ConfigurationError: Not one query, a table that is not there (with the nearest name), or Spark refuses it (its own first line).
    """
    statement, problems = parse_statement(sql)
    if problems or statement is None:
        text = "; ".join(f"line {problem.line}: {problem.text}" for problem in problems)
        raise ConfigurationError(text, next_step="correct the query")
    missing = _missing(tables, graph, statement)
    if missing:
        known = {str(table) for layer in {item.layer for item in missing} for table in _known(tables, graph, layer)}
        text = "; ".join(f"there is no {table}{nearest(str(table), known)}" for table in missing)
        raise ConfigurationError(text, next_step="correct the name, or build the table first")
    try:
        return tables.spark.sql(_spark_sql(tables, graph, statement, _stand_ins(tables, statement, readers or {})))
    except (ParseException, AnalysisException) as error:
        raise ConfigurationError(_first_line(error), next_step="correct the query") from error


def _build(tables: Tables, graph: Graph, node: Node, started: float) -> GoldResult:
    try:
        missing = _missing(tables, graph, node.statement)
        if missing:
            reason = f"{', '.join(map(str, missing))} not there yet"
            return GoldResult(node.name, node.materialized, "skipped", reason=reason)
        rows = _write(tables, graph, node)
    except Exception as error:  # noqa: BLE001  # why: whatever is wrong with one node must not stop the others; the reason is reported
        return GoldResult(node.name, node.materialized, "failed", None, _first_line(error), time.monotonic() - started)
    return GoldResult(node.name, node.materialized, "built", rows, seconds=time.monotonic() - started)


def _write(tables: Tables, graph: Graph, node: Node) -> int | None:
    sql = _spark_sql(tables, graph, node.statement, {})
    frame = tables.spark.sql(sql)
    if node.materialized == "view":
        _ = frame.schema  # a folder lake stores no view: analysing it here reports a broken one now, not at its first reader
        if not tables.lake.by_path:
            tables.replace_view(node.table, sql, comment=node.description)
        return None
    tables.replace(node.table, frame, comment=node.description)
    return int(tables.history(node.table)[0]["operationMetrics"]["numOutputRows"])


def _stand_ins(tables: Tables, statement: Statement, readers: Mapping[str, Reader]) -> dict[TableName, str]:
    """Temporary views over the tables of *statement* whose layer has a reader; a view cannot travel in time, so such tables stay."""
    views: dict[TableName, str] = {}
    travelling = {reference.table for reference in statement.references if reference.travels}
    for table in statement.tables():
        if table not in travelling and (reader := readers.get(table.layer)) is not None:
            views[table] = f"strandline_{table.layer}_{uuid.uuid4().hex}"
            reader(tables.read(table)).createTempView(views[table])
    return views


def _spark_sql(tables: Tables, graph: Graph, statement: Statement, stand_ins: Mapping[TableName, str]) -> str:
    """The statement in Spark's names; views that the lake cannot hold stand in brackets in their place."""

    def target(table: TableName) -> str:
        if table in stand_ins:
            return stand_ins[table]
        node = _inline(tables, graph, table)
        return f"(\n{node.statement.rewrite(target)}\n)" if node else tables.lake.sql(table)

    return statement.rewrite(target)


def _inline(tables: Tables, graph: Graph, table: TableName) -> Node | None:
    """The view behind *table*, where the lake is a folder and so has no views."""
    node = graph.nodes.get(table.name) if table.layer == "gold" and tables.lake.by_path else None
    return node if node is not None and node.materialized == "view" else None


def _missing(tables: Tables, graph: Graph, statement: Statement) -> list[TableName]:
    """Tables that *statement* needs, itself or through views of a folder lake, and that are not in the lake."""
    missing: dict[TableName, None] = {}
    for table in statement.tables():
        node = _inline(tables, graph, table)
        if node is not None:
            missing |= dict.fromkeys(_missing(tables, graph, node.statement))
        elif not tables.exists(table):
            missing[table] = None
    return list(missing)


def _known(tables: Tables, graph: Graph, layer: str) -> list[TableName]:
    try:
        known = tables.names(layer)
    except StrandlineError:  # a folder in object storage cannot be listed: the error goes without a suggestion
        known = []
    return known + [node.table for node in graph.nodes.values() if layer == "gold"]


def _first_line(error: Exception) -> str:
    """An error as one line. Spark adds the plan, the query and a stack trace below its first line."""
    if isinstance(error, StrandlineError):
        return str(error)
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = _CAUSE.findall(text)  # of a failed task only the innermost cause says what is wrong
    return ((causes or lines)[-1 if causes else 0] if lines else type(error).__name__)[:500]
