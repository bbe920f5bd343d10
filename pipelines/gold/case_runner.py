"""Runs YAML cases: the given rows as temporary views, the node's own SQL over them, the result beside what was expected."""

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

from pipelines.errors import one_line
from pipelines.gold.cases import Case, Given
from pipelines.gold.graph import Graph
from pipelines.gold.spark_names import spark_sql
from pipelines.gold.statement import nearest
from pipelines.io.ddl import schema_of
from pipelines.model.tables import Lake, TableName

_MOST_SHOWN = 3


@dataclass(frozen=True)
class CaseResult:
    """*difference* says in one line what was not as expected; empty where all was."""

    node: str
    case: str
    difference: str = ""

    @property
    def passed(self) -> bool:
        return not self.difference


def run_case(spark: SparkSession, graph: Graph, case: Case) -> CaseResult:
    """I/O: runs the node's query in Spark, over temporary views that are gone afterwards; touches no lake."""
    views: dict[TableName, str] = {}
    try:
        node = graph.nodes.get(case.node)
        if node is None:
            raise ValueError(f"there is no gold.{case.node}{nearest(case.node, graph.nodes)}")
        for table, given in case.given.items():
            views[table] = f"strandline_given_{uuid.uuid4().hex}"
            _frame(spark, table, given).createTempView(views[table])
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


def _frame(spark: SparkSession, table: TableName, given: Given) -> DataFrame:
    """The rows as a table. A silver one has a key and is not deleted, where a row does not say otherwise."""
    ddl = given.ddl()
    known = [field.name for field in schema_of(ddl).fields]
    unknown = [
        f"{table} has no column {name}{nearest(name, known)}" for row in given.rows for name in row if name not in known
    ]
    if unknown:
        raise ValueError(unknown[0])
    rows = [dict(row) for row in given.rows]
    if table.layer == "silver":
        ddl += "".join(
            f", {name} {kind}" for name, kind in (("_key", "STRING"), ("_deleted", "BOOLEAN")) if name not in known
        )
        rows = [{"_key": str(number), "_deleted": False, **row} for number, row in enumerate(rows, start=1)]
    parsed = F.parse_json(F.lit(json.dumps(rows, default=str))).cast(f"ARRAY<STRUCT<{ddl}>>")
    return spark.range(1).select(F.inline(parsed))


def _difference(result: DataFrame, expected: Sequence[Mapping[str, Any]]) -> str:
    """Compare the columns that *expected* names, rows in any order."""
    columns = list(dict.fromkeys(name for row in expected for name in row))
    unknown = [name for name in columns if name not in result.columns]
    if unknown:
        return f"the result has no column {unknown[0]}{nearest(unknown[0], result.columns)}"
    found = [_plain(row.asDict(recursive=True)) for row in (result.select(*columns) if columns else result).collect()]
    missing = []
    for row in expected:
        wanted = _plain({name: row.get(name) for name in columns})
        match = next((number for number, actual in enumerate(found) if _alike(actual, wanted)), None)
        if match is None:
            missing.append(wanted)
        else:
            found.pop(match)
    return "; ".join(_shown("expected", missing) + _shown("found instead" if missing else "not expected", found))


def _shown(what: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    more = f" and {len(rows) - _MOST_SHOWN} more" if len(rows) > _MOST_SHOWN else ""
    return [f"{what} {', '.join(json.dumps(row, default=str) for row in rows[:_MOST_SHOWN])}{more}"] if rows else []


def _plain(value: Any) -> Any:
    """Decimals as numbers, tuples as lists."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, Decimal):
        return float(value)
    return value


def _alike(actual: Any, wanted: Any) -> bool:
    if isinstance(actual, dict) and isinstance(wanted, dict):
        return actual.keys() == wanted.keys() and all(_alike(actual[key], wanted[key]) for key in actual)
    if isinstance(actual, list) and isinstance(wanted, list):
        return len(actual) == len(wanted) and all(map(_alike, actual, wanted))
    if isinstance(actual, datetime.datetime) and isinstance(wanted, datetime.datetime):
        # Spark hands instants out in the process's zone; a case means UTC where it names none
        return actual.astimezone(datetime.UTC) == (wanted if wanted.tzinfo else wanted.replace(tzinfo=datetime.UTC))
    if isinstance(actual, int | float) and isinstance(wanted, int | float) and bool not in (type(actual), type(wanted)):
        return math.isclose(actual, wanted, rel_tol=1e-9, abs_tol=1e-9)
    return bool(actual == wanted)
