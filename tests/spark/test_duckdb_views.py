"""Each construct that is handed to DuckDB or DataFusion gives Spark's values there; every other is left to Spark."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlglot

from strandline import read
from strandline.errors import ConfigurationError
from strandline.gold.duckdb_subset import ALLOWED
from strandline.gold.graph import parse
from strandline.gold.query import query
from strandline.gold.statement import DIALECT
from strandline.io.tables.spark_tables import Tables
from strandline.jobs.context import JobContext
from strandline.jobs.gold.run_gold import run_gold
from strandline.jobs.operations.sql import rows_of, run_sql
from strandline.jobs.operations.sql_without_spark import rows_without_spark
from strandline.model.tables import TableName, safe_name
from strandline.settings.configuration import LakeSettings, Settings
from strandline.settings.output import GoldSettings

COLUMNS = """_key STRING, n BIGINT, i INT, x DOUBLE, y DOUBLE, d DECIMAL(38,2), s STRING, b BOOLEAN, at TIMESTAMP,
    day DATE, c STRUCT<city: STRING, n: INT>, tags ARRAY<STRING>, _deleted BOOLEAN"""
OF_MARCH = datetime(2024, 3, 31, 23, 59, 59, 999_999, tzinfo=UTC)
ROWS: list[tuple[Any, ...]] = [
    (
        "1",
        1,
        -7,
        1.5,
        math.nan,
        Decimal("0.10"),
        "a_b",
        True,
        OF_MARCH,
        date(2024, 2, 29),
        ("Köln", 1),
        ["p", "q"],
        False,
    ),
    (
        "2",
        2**53 + 1,
        0,
        -0.0,
        0.0,
        Decimal("-1.00"),
        "axb",
        False,
        datetime(1, 1, 1, tzinfo=UTC),
        date(1582, 10, 10),
        ("", None),
        [""],
        False,
    ),
    (
        "3",
        -(2**62),
        2**31 - 1,
        math.inf,
        -math.inf,
        Decimal(10) ** 35,
        "é\n😀%",
        None,
        datetime(9999, 12, 31, 23, tzinfo=UTC),
        date(9999, 12, 31),
        None,
        ["x"],
        False,
    ),
    ("4", None, None, None, 1e300, None, None, True, None, None, (None, 3), None, False),
    (
        "5",
        2,
        5,
        math.nan,
        1.5,
        Decimal("0.10"),
        "A_b",
        True,
        datetime(1969, 12, 31, 23, tzinfo=UTC),
        date(1969, 12, 28),
        ("köln", 2),
        ["z", None],
        False,
    ),
    ("6", 2, 5, 0.0, -0.0, Decimal("0.1"), "it's \\ \"", False, OF_MARCH, date(2024, 2, 29), ("Köln", 1), [], True),
]
SAME = {
    "everything": "SELECT * FROM silver.a WHERE NOT _deleted",
    "numbers": """SELECT _key, n = 2 AS a, n <=> i AS b, x = y AS c, x > y AS e, d >= 0.1 AS f, x BETWEEN -1 AND 2 AS g,
        i IN (5, 0, NULL) AS h, x <> 0 AS j, d < n AS k, d > x AS l, -x AS m FROM silver.a""",
    "arithmetic": """SELECT _key, i + 2 AS a, i - n AS b, x * 2 AS c, x + i AS e, x - y AS f FROM silver.a
        WHERE n < 100 AND i < 100""",
    "texts": r"""SELECT _key, s < 'a_b' AS a, s LIKE 'a_b' AS b, s LIKE '%😀_' AS c, s || '\n\'"é' AS e,
        s IN ('it\'s \\ "', 'A_b') AS f, coalesce(s, 'none') AS g, s NOT LIKE '_%' AS h FROM silver.a""",
    "times": """SELECT _key, date_trunc('month', at) AS a, date_trunc('DAY', at) AS b, date_trunc('hour', at) AS c,
        date_trunc('quarter', at) AS e, date(at) AS d, year(at) AS f, month(day) AS g, quarter(at) AS h,
        to_date(at) AS j, cast(at AS DATE) AS k, at > timestamp'2024-03-31 12:00:00' AS l, day <= date'2024-02-29' AS m
        FROM silver.a""",
    "choices": """SELECT _key, CASE WHEN b THEN n WHEN n > 2 THEN i ELSE 0 END AS a, if(b IS NULL, 'u', s) AS e,
        CASE WHEN x > 1 THEN 'big' END AS f, int(x < 1) AS g, cast(i AS DOUBLE) AS h, coalesce(n, i, 0) AS j
        FROM silver.a WHERE b IS NOT TRUE OR s IS NULL""",
    "nested": "SELECT _key, c.city, (c).n AS o, c.n + 1 AS m, c, tags FROM silver.a"
    " WHERE c.city = 'Köln' OR c.city IS NULL",
    "index": "SELECT _key, tags[0] AS first FROM silver.a WHERE _key IN ('1', '3')",
    "groups": """SELECT s, date_trunc('year', at) AS year, count(*) AS rows, count(n) AS ns, count(DISTINCT x) AS xs,
        sum(i) AS i, sum(d) AS d, avg(i) AS mean, max(x) AS high, min(y) AS low, max(s) AS last, min(day) AS early,
        count(*) FILTER (WHERE b) AS bs, count_if(b) AS c FROM silver.a WHERE n < 100 GROUP BY s, date_trunc('year', at)
        HAVING count(*) > 0 ORDER BY s DESC""",
    "doubles": "SELECT x, count(*) AS rows, sum(i) AS i FROM silver.a GROUP BY x",
    "whole": "SELECT sum(n) AS n, avg(n) AS mean, max(d) AS d, min(at) AS at, max(b) AS b FROM silver.a WHERE n > 0",
    "distinct": "SELECT DISTINCT d, b FROM silver.a",
    "joined": """WITH w AS (SELECT n, s FROM silver.a WHERE NOT _deleted) SELECT a._key, w.s FROM silver.a a
        LEFT JOIN w ON w.n = a.n AND w.s < a.s""",
    "semi": """SELECT _key FROM silver.a a WHERE EXISTS (SELECT 1 FROM silver.a o WHERE o.n = a.n AND o.s <> a.s)
        UNION ALL SELECT _key FROM silver.a WHERE b""",
    "inner": "SELECT t.k, t.at FROM (SELECT _key AS k, at, _deleted FROM silver.a) AS t"
    " WHERE NOT (t._deleted OR t.at IS NULL)",
    "anti": "SELECT a._key FROM silver.a a LEFT ANTI JOIN silver.a o ON o.n <=> a.i",
}
DIFFERENT = (
    "dayofweek(at)",
    "weekday(at)",
    "extract(DOW FROM at)",
    "cast(at AS STRING)",
    "timestampdiff(DAY, at, timestamp'2024-05-01 00:00:00')",
    "cast(x AS STRING)",
    "string(x)",
    "regexp_replace(s, '(a)', '<$1>')",
    "substring(s, 0, 2)",
    "typeof(n)",
    "percentile(n, 0.5)",
    "format_string('%d', n)",
    "array_position(tags, 'p')",
    "s LIKE 'a\\\\_b'",
    "upper(s)",
    "round(x, 1)",
    "n / i",
    "n % 2",
    "d * d",
    "avg(d)",
    "date_trunc('week', at)",
    "date_trunc('month', day)",
    "concat(s, 'a')",
    "'it''s'",
    "s = n",
    "my_udf(s)",
    "cast(s AS DATE)",
    "at > '2024-01-01'",
    "size(tags)",
    "coalesce(s, n)",
    "sum(s)",
    "get_json_object(s, '$.a')",
    "count(DISTINCT n, i)",
    "tags[i]",
    "first(s)",
    "rank() OVER (ORDER BY n)",
    "n IN (SELECT i FROM silver.a)",
    "current_date()",
    "CASE n WHEN 1 THEN 2 END",
    "at - day",
    "at >= day",
    "cast(x AS BIGINT)",
)


@pytest.fixture
def ctx(tables: Tables, tmp_path: Path) -> JobContext:
    (tmp_path / "gold").mkdir()
    tables.replace(TableName("silver", "a"), tables.spark.createDataFrame(ROWS, COLUMNS))
    settings = Settings(lake=LakeSettings(root=tables.lake.root), gold=GoldSettings(sql_dir=str(tmp_path / "gold")))
    return JobContext(settings=settings, spark=tables.spark, tables=tables)


def _build(ctx: JobContext, files: dict[str, str]) -> None:
    for name, sql in files.items():
        Path(ctx.settings.gold.sql_dir or "", f"{name}.sql").write_text(sql, encoding="utf-8")
    assert [(each.name, each.reason) for each in run_gold(ctx) if each.status != "built"] == []


def test_a_view_that_is_translated_has_sparks_names_and_values_in_duckdb(ctx: JobContext) -> None:
    _build(ctx, {f"v_{name}": sql for name, sql in SAME.items()})
    graph = parse({f"v_{name}.sql": sql for name, sql in SAME.items()})
    found: dict[str, list[tuple[str | None, str | None]]] = {}
    for name in SAME:
        spark = query(ctx.tables, graph, f"SELECT * FROM gold.v_{name}").toArrow()
        duckdb = read(f"gold.v_{name}", root=ctx.settings.lake.root)
        assert duckdb.column_names == spark.column_names, name
        assert list(map(pa.types.is_decimal, duckdb.schema.types)) == list(map(pa.types.is_decimal, spark.schema.types))
        there, here = _comparable(spark.to_pylist()), _comparable(duckdb.to_pylist())
        found[name] = [(one, other) for one, other in zip_longest(there, here) if one != other][:2]
    assert {name: rows for name, rows in found.items() if rows} == {}


TYPED = (
    "SELECT count(*), SUM(N), avg(i), count(DISTINCT s) FROM silver.a",
    "SELECT b, COUNT(*) FROM silver.a GROUP BY ALL ORDER BY 2 DESC, B LIMIT 2",
    "SELECT c.City, count(*) AS `Zahl der Ä` FROM silver.A GROUP BY c.city ORDER BY `zahl der ä` DESC, 1",
    "SELECT t.N, T.x FROM silver.`a` t ORDER BY n DESC NULLS LAST, t.x LIMIT 3 -- the largest",
    "SELECT A.s FROM silver.a WHERE at > timestamp'2024-01-01 00:00:00' ORDER BY a.s",
    "SELECT orderlines.`orderId`, ORDERID, orderLines._KEY FROM silver.orderLines ORDER BY orderid",
    "SELECT orderId FROM silver.`orderLines` UNION ALL SELECT n FROM silver.a",
    "SELECT ab FROM silver.`order-lines.v2`",
    "SELECT ab FROM silver.`shop.order-lines.v2`",
    "SELECT days, n FROM gold.sold WHERE days >= 1",
)
"""Queries with names of tables and columns in upper and lower case."""


def test_a_query_has_sparks_names_and_values_without_spark(ctx: JobContext) -> None:
    """Rows 1, 5 and 6: a value that only Spark computes with, such as a time in the year 1, leaves the query to it."""
    of_table = ctx.tables.spark.createDataFrame([row for row in ROWS if row[0] in "156"], COLUMNS)
    ctx.tables.replace(TableName("silver", "b"), of_table)
    for name, columns in (("orderLines", "_key STRING, orderId BIGINT"), ("order-lines.v2", "ab ARRAY<TIMESTAMP>")):
        row = ("k", 7) if name == "orderLines" else ([OF_MARCH, None],)
        ctx.tables.replace(TableName("silver", safe_name(name)), ctx.tables.spark.createDataFrame([row], columns))
    ctx.tables.replace(
        TableName("silver", safe_name("shop", "order-lines.v2")),
        ctx.tables.spark.createDataFrame([([],)], "ab ARRAY<INT>"),
    )
    sold = Path(ctx.settings.gold.sql_dir or "", "sold.sql")
    sold.write_text("SELECT day, n, count(*) AS days FROM silver.a GROUP BY day, n", encoding="utf-8")
    here: dict[str, list[str]] = {}
    there: dict[str, list[str]] = {}
    for sql in (*(text.replace("silver.a ", "silver.b ") for text in SAME.values()), *TYPED):
        rows = rows_without_spark(ctx.settings, sql, 1000)
        here[sql] = ["Spark"] if rows is None else _comparable(rows)
        there[sql] = _comparable(rows_of(run_sql(ctx, sql), 1000))
    left = [sql for sql, rows in here.items() if rows == ["Spark"]]
    assert [sql for sql in left if sql in TYPED] == []
    assert len(left) <= 4, left
    assert here == there | {sql: ["Spark"] for sql in left}


def test_a_query_that_may_give_other_values_is_left_to_spark(ctx: JobContext) -> None:
    left = (*DIFFERENT, "n + 1", "-n", "sum(n + i)", "s LIKE 1")
    answers = {sql: rows_without_spark(ctx.settings, f"SELECT {sql} AS v FROM silver.a", 5) for sql in left}
    assert {sql for sql, rows in answers.items() if rows is not None} == set()
    versioned = "SELECT n FROM silver.a VERSION AS OF 0"
    assert rows_without_spark(ctx.settings, versioned, 5) is None


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT nn FROM silver.a", r"there is no column nn \(did you mean n\?\) → correct the query"),
        ("SELECT n FROM silver.orderlines", r"there is no silver.orderlines \(did you mean silver.a\?\) → "),
        ("DELETE FROM silver.a", "DELETE is not a query"),
    ],
)
def test_a_wrong_query_is_answered_without_spark(ctx: JobContext, sql: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        rows_without_spark(ctx.settings, sql, 5)


def test_every_construct_on_the_list_is_compared() -> None:
    trees = [sqlglot.parse_one(sql, dialect=DIALECT) for sql in SAME.values()]
    assert {kind.__name__ for kind in ALLOWED} - {
        type(node).__name__ for tree in trees for node in tree.walk()
    } == set()


def test_every_other_construct_is_for_spark_only_and_says_so(ctx: JobContext) -> None:
    views = {f"v{number}": f"SELECT {sql} AS v FROM silver.a" for number, sql in enumerate(DIFFERENT)}
    views = {name: sql for name, sql in views.items() if "my_udf" not in sql}
    views["no_name"] = "SELECT count(*) FROM silver.a"
    views["star"] = "SELECT * FROM silver.a JOIN silver.a o USING (_key)"
    views["shadow"] = "SELECT coalesce(s, 'x') AS s, count(*) AS rows FROM silver.a GROUP BY s"
    views["top"] = "SELECT n FROM silver.a ORDER BY n LIMIT 1"
    for name, sql in views.items():
        Path(ctx.settings.gold.sql_dir or "", f"{name}.sql").write_text(sql, encoding="utf-8")
    built = {each.name for each in run_gold(ctx) if each.status == "built"}
    assert len(built) > 30
    folder = Path(ctx.tables.lake.path(TableName("gold", "_views")))
    assert [file.name for file in folder.glob("*.duckdb.sql")] == []
    for name in built:
        with pytest.raises(ConfigurationError, match=rf"gold\.{name} is a view for Spark only: .* → strandline sql"):
            read(f"gold.{name}", root=ctx.settings.lake.root)


def _comparable(rows: list[dict[str, Any]]) -> list[str]:
    """Return the rows as sorted texts. Numbers are texts without a type; times are UTC."""
    return sorted(repr({key: _value(value) for key, value in row.items()}) for row in rows)


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _value(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_value(inner) for inner in value]
    if isinstance(value, float):
        return repr(value + 0.0)
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return str(value) if isinstance(value, Decimal) else value
