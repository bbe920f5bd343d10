from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from strandline.demo.files import GOLD
from strandline.gold.case_runner import run_case
from strandline.gold.cases import parse_cases
from strandline.gold.graph import parse
from strandline.io.tables.spark_tables import Tables
from strandline.jobs.context import JobContext
from strandline.jobs.gold.run_gold import check_gold
from strandline.settings.configuration import GoldSettings, LakeSettings, Settings

GRAPH = parse(
    {
        "low.sql": "select k, avg(x) as mean, max(at) as latest from silver.a where not _deleted group by k",
        "high.sql": "select * from gold.low where mean > 1",
    }
)


def test_the_demos_cases_pass_and_cover_every_piece(spark: SparkSession, tables: Tables) -> None:
    lake = LakeSettings(root=tables.lake.root)
    results = check_gold(JobContext(Settings(lake=lake, gold=GoldSettings(sql_dir=str(GOLD))), spark, tables))
    assert {result.node for result in results} == {"delay_by_weather", "fleet_age", "on_time_performance"}
    assert [result for result in results if not result.passed] == []
    assert not Path(tables.lake.root or "").exists(), "cases need no lake"


@pytest.mark.parametrize(
    ("given", "expect", "difference"),
    [
        ("silver.a: [{k: 1, x: 1.1, at: 2013-01-01}, {k: 1, x: 2.2, at: 2013-01-01}]", "[{k: 1, mean: 1.65}]", ""),
        (
            "silver.a: [{k: 1, x: 3, at: 2013-01-01T01:00:00+01:00}]",
            "[{k: 1, mean: 3, latest: 2013-01-01 00:00:00}]",
            "",
        ),
        ("silver.a: {columns: 'k INT, x DECIMAL(9,2), at DATE', rows: []}", "[]", ""),
        ("gold.low: [{k: 1, mean: 2}]", "[{k: 1, mean: 2}]", ""),
        (
            "gold.low: [{k: 1, mean: 2}]",
            "[{k: 1, mean: 3}]",
            'expected {"k": 1, "mean": 3}; found instead {"k": 1, "mean": 2}',
        ),
        ("gold.low: [{k: 1, mean: 2}]", "[]", 'not expected {"k": 1, "mean": 2}'),
        ("gold.low: [{k: 1, mean: 2}]", "[{kk: 1}]", "the result has no column kk (did you mean k?)"),
        ("silver.b: [{k: 1}]", "[]", "silver.a is not given"),
        ("silver.a: []", "[]", "a table without rows needs columns"),
        ("silver.a: {columns: 'k INT', rows: [{kk: 1}]}", "[]", "silver.a has no column kk (did you mean k?)"),
        ("silver.a: {columns: 'k INT, x INT, at DATE', rows: [{k: many}]}", "[]", "INVALID_VARIANT_CAST"),
        ("silver.a: [{k: 1}]", "[]", "UNRESOLVED_COLUMN"),
    ],
)
def test_a_case_says_what_differs(spark: SparkSession, given: str, expect: str, difference: str) -> None:
    problems: list[str] = []
    (case,) = parse_cases("high.yml", f"- given: {{{given}}}\n  expect: {expect}", problems)
    assert problems == []
    result = run_case(spark, GRAPH, case)
    assert result.passed == (difference == ""), result
    assert difference in result.difference
    assert "\n" not in result.difference
    assert [row for row in spark.sql("show views").collect() if row["viewName"].startswith("strandline_given")] == []
