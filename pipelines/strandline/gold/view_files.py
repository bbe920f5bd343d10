"""SQL files of the gold views of a lake by path: for DuckDB and for Spark, with the paths of the tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from strandline.gold.graph import Graph, Node
from strandline.gold.pinned_inputs import without_quarantined
from strandline.gold.spark_names import spark_sql
from strandline.gold.statement import DIALECT
from strandline.model.tables import Lake, TableName, quoted

FOLDER: Final = TableName("gold", "_views")
"""Folder of the files. It stands beside the gold tables, and is none."""
DUCKDB, SPARK = ".duckdb.sql", ".spark.sql"
_S3A: Final = re.compile(r"^s3a://")


class NotTranslated(Exception):
    """A view has no SQL for DuckDB. The message is the reason."""


def name_in(file: str) -> str:
    """Return the name of the view whose file this is. Empty: another file."""
    return next((file.removesuffix(end) for end in (DUCKDB, SPARK) if file.endswith(end)), "")


def spark_file(lake: Lake, graph: Graph, node: Node, quarantines: Mapping[TableName, TableName]) -> str:
    """Return the statement with which Spark creates *node* as a temporary view. Views that it reads are in it. Pure.

    Args:
        quarantines: Quarantine table by silver table. The view lacks their rows.
    """
    query = spark_sql(lake, graph, node.statement, without_quarantined(lake, quarantines))
    return f"{_head(node)}CREATE OR REPLACE TEMPORARY VIEW {quoted(node.name)} AS\n{query};\n"


def duckdb_file(lake: Lake, graph: Graph, node: Node, quarantines: Mapping[TableName, TableName]) -> str:
    """Return the statements with which DuckDB creates *node* as a view, by its extension ``delta``. Pure.

    Args:
        quarantines: As for `spark_file`.

    Raises:
        NotTranslated: The query uses something that DuckDB lacks.
    """
    query = spark_sql(lake, graph, node.statement, without_quarantined(lake, quarantines))
    try:
        tree = sqlglot.parse_one(query, dialect=DIALECT)
        for table in list(tree.find_all(exp.Table)):
            if table.db.lower() == "delta":
                _read_by_delta_scan(table)
        text = tree.sql("duckdb", pretty=True, comments=False, unsupported_level=sqlglot.ErrorLevel.RAISE)
    except SqlglotError as error:
        raise NotTranslated(str(error).partition("\n")[0]) from None
    name = exp.to_identifier(node.name, quoted=True).sql("duckdb")
    return (
        f"{_head(node)}-- Times are shown and cut in UTC.\nSET TimeZone = 'UTC';\nCREATE SCHEMA IF NOT EXISTS gold;\n"
        f"CREATE OR REPLACE VIEW gold.{name} AS\n{text};\n"
    )


def _read_by_delta_scan(table: exp.Table) -> None:
    """Put a table function in the place of *table*, whose name is a path."""
    if table.args.get("version") or table.args.get("when"):
        raise NotTranslated(f"time travel ({table.this.name})")
    path = exp.Literal.string(_S3A.sub("s3://", table.name))
    scan = exp.Anonymous(this="delta_scan", expressions=[path])
    others = {name: value for name, value in table.args.items() if name not in ("this", "db", "catalog")}
    table.replace(exp.Table(this=scan, **others))


def _head(node: Node) -> str:
    said = node.header.description.replace("\n", " ")
    return f"-- gold.{node.name}: written by strandline gold\n" + (f"-- {said}\n" if said else "")
