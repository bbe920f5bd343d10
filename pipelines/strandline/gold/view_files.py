"""SQL files of the gold views of a lake by path: for DuckDB and for Spark, with the paths of the tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from strandline.gold.duckdb_subset import same_in_duckdb
from strandline.gold.graph import Graph, Node
from strandline.gold.pinned_inputs import without_quarantined
from strandline.gold.spark_names import spark_sql
from strandline.gold.statement import DIALECT
from strandline.model.tables import Lake, TableName, quoted

FOLDER: Final = TableName("gold", "_views")
"""Folder of the files. It stands beside the gold tables, and is none."""
DUCKDB, SPARK = ".duckdb.sql", ".spark.sql"
NOT_DUCKDB: Final = "-- Not for DuckDB: "
"""Beginning of the line with the reason, in the file for Spark."""
_S3A: Final = re.compile(r"^s3a://")


class NotTranslated(Exception):
    """A view has no SQL for DuckDB. The message is the reason."""


def name_in(file: str) -> str:
    """Return the name of the view whose file this is. Empty: another file."""
    return next((file.removesuffix(end) for end in (DUCKDB, SPARK) if file.endswith(end)), "")


def spark_file(
    lake: Lake, graph: Graph, node: Node, quarantines: Mapping[TableName, TableName], not_duckdb: str = ""
) -> str:
    """Return the statement with which Spark creates *node* as a temporary view. Views that it reads are in it. Pure.

    Args:
        quarantines: Quarantine table by silver table. The view lacks their rows.
        not_duckdb: Reason why there is no file for DuckDB. Empty: there is one.
    """
    head = _head(node) + (f"{NOT_DUCKDB}{' '.join(not_duckdb.split())}\n" if not_duckdb else "")
    query = spark_sql(lake, graph, node.statement, without_quarantined(lake, quarantines))
    return f"{head}CREATE OR REPLACE TEMPORARY VIEW {quoted(node.name)} AS\n{query};\n"


def duckdb_file(
    lake: Lake,
    graph: Graph,
    node: Node,
    quarantines: Mapping[TableName, TableName],
    types: Mapping[TableName, Mapping[str, str]] | None = None,
) -> str:
    """Return the statements with which DuckDB creates *node* as a view, by its extension ``delta``. Pure.

    Args:
        quarantines: As for `spark_file`.
        types: Type of each column by table, in Spark's words. None: not known, so types are not looked at.

    Raises:
        NotTranslated: The query uses something that DuckDB lacks, or that may give other values there.
    """
    query = spark_sql(lake, graph, node.statement, without_quarantined(lake, quarantines))
    try:
        tree = sqlglot.parse_one(query, dialect=DIALECT)
        if any(table.args.get("version") or table.args.get("when") for table in tree.find_all(exp.Table)):
            raise NotTranslated("time travel is not translated")
        of_paths = (
            None
            if types is None
            else {("delta", lake.path(table)): table_types for table, table_types in types.items()}
        )
        if different := same_in_duckdb(tree, of_paths):
            raise NotTranslated(f"{' '.join(different.split())} may give other values there")
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
    path = exp.Literal.string(_S3A.sub("s3://", table.name))
    scan = exp.Anonymous(this="delta_scan", expressions=[path])
    others = {name: value for name, value in table.args.items() if name not in ("this", "db", "catalog")}
    table.replace(exp.Table(this=scan, **others))


def _head(node: Node) -> str:
    description = node.header.description.replace("\n", " ")
    return f"-- gold.{node.name}: written by strandline gold\n" + (f"-- {description}\n" if description else "")
