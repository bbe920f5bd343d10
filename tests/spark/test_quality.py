from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from pipelines.errors import ConfigurationError, QualityGateClosed
from pipelines.io.tables import Tables
from pipelines.jobs.context import JobContext
from pipelines.jobs.quality import run_quality
from pipelines.model.tables import TableName
from pipelines.quality.expectations import Checker, known_expectations
from pipelines.quality.gate import load_suites
from pipelines.quality.results import QUALITY, SCHEMA
from pipelines.quality.rules import Suite, parse_suites
from pipelines.settings import LakeSettings, QualitySettings, Settings

FLIGHTS = TableName("silver", "flights")
COLUMNS = "_key STRING, carrier STRING, origin STRING, distance INT, status STRING, _deleted BOOLEAN, _position STRING"
GOOD = [
    ("1", "UA", "EWR", 1400, "arrived", False, "p1"),
    ("2", "AA", "JFK", 17, "scheduled", False, "p3"),
    ("3", None, "XXX", -1, None, True, "p9"),
]


@pytest.fixture
def ctx(spark: SparkSession, tables: Tables, tmp_path: Path) -> JobContext:
    settings = Settings(lake=LakeSettings(root=tables.lake.root), quality=QualitySettings(docs_dir=str(tmp_path / "docs")))
    return JobContext(settings=settings, spark=spark, tables=tables)


def _flights(tables: Tables, rows: list[tuple[object, ...]]) -> None:
    tables.replace(FLIGHTS, tables.spark.createDataFrame(rows, COLUMNS))


def _suite(expectations: str) -> Suite:
    return parse_suites({"a.yml": f"table: silver.a\nexpectations: [{expectations}]"}, known_expectations())[0]


def _recorded(tables: Tables) -> DataFrame:
    return tables.read(QUALITY)


def test_the_suite_of_the_project_passes_good_flights_and_leaves_rows_and_pages(ctx: JobContext) -> None:
    _flights(ctx.tables, GOOD)
    report = run_quality(ctx)
    assert report.success
    assert [check.outcome for check in report.checks] == ["passed"] * 5
    recorded = _recorded(ctx.tables)
    assert [(field.name, field.dataType) for field in recorded.schema] == [(field.name, field.dataType) for field in SCHEMA]
    row = recorded.where("expectation = 'expect_column_values_to_be_between'").collect()[0]
    assert (row["run_id"], row["table"], row["table_version"], row["suite"]) == (report.run_id, "silver.flights", 1, "flights")
    assert (row["position_from"], row["position_to"]) == (None, "p3")  # the tombstone p9 was not among the rows checked
    assert (row["column"], row["success"], row["unexpected_count"], row["on_failure"]) == ("distance", True, 0, "block")
    assert json.loads(row["kwargs"]) == {"column": "distance", "min_value": 1, "max_value": 5000}
    assert json.loads(row["observed"])["element_count"] == 2
    assert report.docs is not None
    assert "flights" in report.docs.read_text(encoding="utf-8")
    assert len(list(report.docs.parent.rglob("*.html"))) >= 2


def test_a_blocking_failure_closes_the_gate_after_everything_is_written(ctx: JobContext) -> None:
    _flights(ctx.tables, [*GOOD, ("1", "UA", "EWR", -5, "arrived", False, "p4")])
    with pytest.raises(QualityGateClosed, match="2 blocking expectations did not pass") as caught:
        run_quality(ctx, ["silver.flights"])
    assert caught.value.exit_code == 5
    assert caught.value.next_step.endswith("strandline quality run")
    failed = {row["column"]: row for row in _recorded(ctx.tables).where("outcome = 'failed'").collect()}
    assert {column: row["unexpected_count"] for column, row in failed.items()} == {"_key": 2, "distance": 1}
    assert json.loads(failed["distance"]["observed"])["partial_unexpected_list"] == [-5]
    assert _recorded(ctx.tables).count() == 5
    assert (Path(ctx.settings.quality.docs_dir) / "index.html").is_file()


def test_every_run_is_kept_and_warnings_do_not_close_the_gate(ctx: JobContext, tmp_path: Path) -> None:
    _flights(ctx.tables, GOOD)
    (tmp_path / "quality").mkdir()
    text = "table: silver.flights\nexpectations: [{type: expect_table_row_count_to_equal, value: 7}]"
    (tmp_path / "quality" / "rows.yml").write_text(text, encoding="utf-8")
    for _ in range(2):
        report = run_quality(ctx, conf=tmp_path)
        assert [(check.outcome, check.column) for check in report.checks] == [("failed", None)]
    assert _recorded(ctx.tables).select("run_id").distinct().count() == 2


def test_a_broken_check_is_an_error_of_the_suite_and_no_failure(tables: Tables, tmp_path: Path) -> None:
    rows = tables.spark.sql("select 1 as a, timestamp '2013-01-01' as at")
    suite = _suite(
        "{type: expect_column_values_to_not_be_null, column: nothing},"
        "{type: expect_column_values_to_be_between, column: at, min_value: 3},"
        "{type: unexpected_rows_expectation, unexpected_rows_query: 'select nothing from {batch}'},"
        "{type: expect_column_values_to_not_be_null, column: a}"
    )
    checks = Checker(tmp_path / "docs").check(suite, rows)
    assert [check.outcome for check in checks] == ["error", "error", "error", "passed"]
    assert "nothing" in json.loads(checks[0].observed)["error"]
    assert all(check.unexpected_count is None and "\n" not in json.loads(check.observed)["error"] for check in checks[:3])


def test_int64_needs_sql_because_between_compares_as_double(tables: Tables, tmp_path: Path) -> None:
    rows = tables.spark.sql("select 9007199254740993L as a")
    suite = _suite(
        "{type: expect_column_values_to_be_between, column: a, max_value: 9007199254740992},"
        "{type: unexpected_rows_expectation, unexpected_rows_query: 'select * from {batch} where a > 9007199254740992'}"
    )
    checks = Checker(tmp_path / "docs").check(suite, rows)
    assert [(check.outcome, check.unexpected_count) for check in checks] == [("passed", 0), ("failed", 1)]


def test_equal_expectations_keep_their_order_and_an_empty_table_passes(tables: Tables, tmp_path: Path) -> None:
    rows = tables.spark.createDataFrame([], "a INT")
    item = "{type: expect_column_values_to_not_be_null, column: a}"
    checks = Checker(tmp_path / "docs").check(_suite(f"{item}, {item}"), rows)
    assert [check.outcome for check in checks] == ["passed", "passed"]


@pytest.mark.parametrize(
    ("where", "table", "message"), [("nothing > 1", "silver.flights", "UNRESOLVED_COLUMN"), ("a", "silver.gone", "not there yet")]
)
def test_a_suite_that_cannot_run_closes_a_blocking_gate(ctx: JobContext, tmp_path: Path, where: str, table: str, message: str) -> None:
    _flights(ctx.tables, GOOD)
    (tmp_path / "quality").mkdir()
    text = f"table: {table}\nwhere: {where}\non_failure: block\nexpectations: [{{type: expect_column_to_exist, column: a}}]"
    (tmp_path / "quality" / "a.yml").write_text(text, encoding="utf-8")
    with pytest.raises(QualityGateClosed, match="expect_column_to_exist"):
        run_quality(ctx, conf=tmp_path)
    (row,) = _recorded(ctx.tables).collect()
    assert (row["outcome"], row["success"]) == ("error", False)
    assert message in json.loads(row["observed"])["error"]


def test_an_argument_of_the_wrong_type_is_one_line_with_its_file(tables: Tables, tmp_path: Path) -> None:
    suite = _suite("{type: expect_column_values_to_be_between, column: a, min_value: many}")
    with pytest.raises(ConfigurationError, match=r"a\.yml: expectations, 1 \(expect_column_values_to_be_between\): min_value: ") as caught:
        Checker(tmp_path / "docs").check(suite, tables.spark.sql("select 1 as a"))
    assert "\n" not in str(caught.value)


def test_the_library_sends_nothing_and_takes_the_session_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    before = dict(spark.conf.getAll)
    checker = Checker(tmp_path / "docs")
    assert os.environ["GX_ANALYTICS_ENABLED"] == "false"
    assert checker._context.variables.analytics_enabled is False
    assert checker._context.variables.progress_bars.globally is False
    assert dict(spark.conf.getAll) == before
    assert SparkSession.getActiveSession() is spark


def test_the_files_of_the_project_are_suites() -> None:
    assert [suite.name for suite in load_suites(Path("conf"), known_expectations())] == ["flights"]
