"""Run YAML cases: query temporary views of the given rows with the SQL of the node, then compare the result."""

from __future__ import annotations

import datetime
import json
import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from strandline.errors import one_line
from strandline.gold.cases import Case, InputTable
from strandline.gold.graph import Graph
from strandline.gold.spark_names import spark_sql
from strandline.gold.statement import suggestion
from strandline.io.tables.ddl import schema_of
from strandline.model.tables import Lake, TableName

_MAX_ROWS_SHOWN = 3


@dataclass(frozen=True)
class CaseResult:
    """Result of one case. *difference* describes in one line what was not as expected; empty: the case passed."""

    node: str
    case: str
    difference: str = ""

    @property
    def passed(self) -> bool:
        return not self.difference


def run_case(spark: SparkSession, graph: Graph, case: Case) -> CaseResult:
    """Run one case and compare its rows with the expected rows.

    I/O: runs the query of the node in Spark; creates temporary views and drops them; reads and writes no table.
    """
    views: dict[TableName, str] = {}
    try:
        node = graph.nodes.get(case.node)
        if node is None:
            raise ValueError(f"there is no gold.{case.node}{suggestion(case.node, graph.nodes)}")
        for table, rows in case.tables.items():
            views[table] = f"strandline_given_{uuid.uuid4().hex}"
            _given_rows(spark, table, rows).createTempView(views[table])
        flat = Graph({name: inner for name, inner in graph.nodes.items() if inner.table not in views})
        sql = spark_sql(Lake(), flat, node.statement, lambda table: _view(views, table))
        difference = _difference(spark.sql(sql), case.expect)
    except (ValueError, PySparkException) as error:
        difference = one_line(error)
    finally:
        for view in views.values():
            spark.catalog.dropTempView(view)
    return CaseResult(case.node, case.name, difference)


def _view(views: Mapping[TableName, str], table: TableName) -> str:
    if table not in views:
        raise ValueError(f"{table} is not given")
    return views[table]


def _given_rows(spark: SparkSession, table: TableName, content: InputTable) -> DataFrame:
    """Return the given rows as a DataFrame. Rows of a silver table get default values for ``_key`` and ``_deleted``."""
    ddl = content.ddl()
    columns = [field.name for field in schema_of(ddl).fields]
    unknown = [
        f"{table} has no column {name}{suggestion(name, columns)}"
        for row in content.rows
        for name in row
        if name not in columns
    ]
    if unknown:
        raise ValueError(unknown[0])
    rows = [dict(row) for row in content.rows]
    if table.layer == "silver":
        ddl += "".join(
            f", {name} {kind}" for name, kind in (("_key", "STRING"), ("_deleted", "BOOLEAN")) if name not in columns
        )
        rows = [{"_key": str(number), "_deleted": False, **row} for number, row in enumerate(rows, start=1)]
    parsed = F.parse_json(F.lit(json.dumps(rows, default=str))).cast(f"ARRAY<STRUCT<{ddl}>>")
    return spark.range(1).select(F.inline(parsed))


def _difference(result: DataFrame, expected: Sequence[Mapping[str, Any]]) -> str:
    """Compare the columns named in *expected*, in any row order. Return the differences in one line; empty: none."""
    columns = list(dict.fromkeys(name for row in expected for name in row))
    unknown = [name for name in columns if name not in result.columns]
    if unknown:
        return f"the result has no column {unknown[0]}{suggestion(unknown[0], result.columns)}"
    extra = [
        _comparable(row.asDict(recursive=True)) for row in (result.select(*columns) if columns else result).collect()
    ]
    missing = []
    for row in expected:
        expected_row = _comparable({name: row.get(name) for name in columns})
        match = next((number for number, actual in enumerate(extra) if _equal(actual, expected_row)), None)
        if match is None:
            missing.append(expected_row)
        else:
            extra.pop(match)
    return "; ".join(_listed("expected", missing) + _listed("found instead" if missing else "not expected", extra))


def _listed(what: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    more = f" and {len(rows) - _MAX_ROWS_SHOWN} more" if len(rows) > _MAX_ROWS_SHOWN else ""
    return [f"{what} {', '.join(json.dumps(row, default=str) for row in rows[:_MAX_ROWS_SHOWN])}{more}"] if rows else []


def _comparable(value: Any) -> Any:
    """Return *value* with decimals as floats and tuples as lists."""
    if isinstance(value, dict):
        return {key: _comparable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_comparable(inner) for inner in value]
    if isinstance(value, Decimal):
        return float(value)
    return value


def _equal(actual: Any, expected: Any) -> bool:
    if isinstance(actual, dict) and isinstance(expected, dict):
        return actual.keys() == expected.keys() and all(_equal(actual[key], expected[key]) for key in actual)
    if isinstance(actual, list) and isinstance(expected, list):
        return len(actual) == len(expected) and all(map(_equal, actual, expected))
    if isinstance(actual, datetime.datetime) and isinstance(expected, datetime.datetime):
        # Spark returns timestamps in the local zone of the process; a case without a zone means UTC
        return actual.astimezone(datetime.UTC) == (
            expected if expected.tzinfo else expected.replace(tzinfo=datetime.UTC)
        )
    if (
        isinstance(actual, int | float)
        and isinstance(expected, int | float)
        and bool not in (type(actual), type(expected))
    ):
        return math.isclose(actual, expected, rel_tol=1e-9, abs_tol=1e-9)
    return bool(actual == expected)
