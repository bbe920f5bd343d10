from __future__ import annotations

import json
import logging
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from strandline.demo import files
from strandline.errors import ConfigurationError, QualityGateClosed
from strandline.io.tables.ddl import schema_of
from strandline.io.tables.spark_tables import Tables
from strandline.io.tables.table_store import CHANGE_FEED
from strandline.jobs.context import JobContext
from strandline.jobs.gold.quality import latest_checks, run_quality
from strandline.jobs.operations.status import docs_page, quarantined_rows
from strandline.model.table_schemas import QUALITY, QUALITY_DDL
from strandline.model.tables import TableName
from strandline.quality.expectations import Checker
from strandline.quality.gate import known_kinds
from strandline.quality.rules import Suite, parse_suites
from strandline.settings.configuration import LakeSettings, QualitySettings, Settings

FLIGHTS = TableName("silver", "flights")
COLUMNS = "_key STRING, carrier STRING, origin STRING, distance INT, status STRING, _deleted BOOLEAN, _position STRING"
GOOD = [
    ("1", "UA", "EWR", 1400, "arrived", False, "p1"),
    ("2", "AA", "JFK", 17, "scheduled", False, "p3"),
    ("3", None, "XXX", -1, None, True, "p9"),
]


@pytest.fixture
def ctx(spark: SparkSession, tables: Tables, tmp_path: Path) -> JobContext:
    settings = Settings(
        lake=LakeSettings(root=tables.lake.root),
        quality=QualitySettings(suites_dir=str(files.QUALITY), docs_dir=str(tmp_path / "docs")),
    )
    return JobContext(settings=settings, spark=spark, tables=tables)


def _flights(tables: Tables, rows: list[tuple[object, ...]]) -> None:
    tables.replace(FLIGHTS, tables.spark.createDataFrame(rows, COLUMNS))


def _suite(expectations: str) -> Suite:
    return parse_suites({"a.yml": f"table: silver.a\nexpectations: [{expectations}]"}, known_kinds())[0]


def _recorded(tables: Tables) -> DataFrame:
    return tables.read(QUALITY)


def _with_suites(ctx: JobContext, **texts: str) -> JobContext:
    """Return the context with other suites."""
    folder = Path(ctx.settings.quality.docs_dir).parent / "quality"
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.yml").write_text(text, encoding="utf-8")
    quality = ctx.settings.quality.model_copy(update={"suites_dir": str(folder)})
    return replace(ctx, settings=ctx.settings.model_copy(update={"quality": quality}))


def test_the_demos_suites_pass_good_flights_and_leave_rows_and_pages(
    ctx: JobContext, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    _flights(ctx.tables, GOOD)
    report = run_quality(ctx)
    assert report.success
    assert [check.outcome for check in report.checks] == ["passed"] * 5
    recorded = _recorded(ctx.tables)
    assert [(field.name, field.dataType) for field in recorded.schema] == [
        (field.name, field.dataType) for field in schema_of(QUALITY_DDL)
    ]
    row = recorded.where("expectation = 'expect_column_values_to_be_between'").collect()[0]
    assert (row["run_id"], row["table"], row["table_version"], row["suite"]) == (
        report.run_id,
        "silver.flights",
        0,
        "flights",
    )
    assert (row["scope"], row["position_from"], row["position_to"]) == (
        "all",
        None,
        "p3",
    )  # the tombstone p9 was not among the rows checked
    assert (row["column"], row["success"], row["unexpected_count"], row["on_failure"]) == (
        "distance",
        True,
        0,
        "quarantine",
    )
    assert json.loads(row["kwargs"]) == {"column": "distance", "min_value": 1, "max_value": 5000}
    assert json.loads(row["observed"])["element_count"] == 2
    assert report.docs == docs_page(ctx.settings)
    assert "flights" in report.docs.read_text(encoding="utf-8")
    assert len(list(report.docs.parent.rglob("*.html"))) >= 2
    assert quarantined_rows(ctx) == {}, "without a failing row there is no quarantine"
    assert [record.message for record in caplog.records if record.name.startswith("great_expectations")] == []


@pytest.mark.check
def test_a_blocking_failure_closes_the_gate_after_everything_is_written(ctx: JobContext) -> None:
    _flights(ctx.tables, [*GOOD, ("1", "UA", "EWR", 5, "arrived", False, "p4")])
    with pytest.raises(
        QualityGateClosed,
        match=r"silver\.flights expect_column_values_to_be_unique\(_key\) failed for 2 rows: key #6b86b273ff34, key",
    ) as caught:
        run_quality(ctx, ["silver.flights"])
    assert caught.value.exit_code == 5
    assert caught.value.next_step.endswith("strandline quality run")
    (failed,) = _recorded(ctx.tables).where("outcome = 'failed'").collect()
    assert (failed["column"], failed["unexpected_count"]) == ("_key", 2)
    assert json.loads(failed["observed"])["rows"] == ["1", "1"]
    assert _recorded(ctx.tables).count() == 5
    assert (Path(ctx.settings.quality.docs_dir) / "index.html").is_file()


def test_pages_that_cannot_be_written_hold_nothing(
    ctx: JobContext, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _flights(ctx.tables, GOOD)
    (tmp_path / "file").touch()
    quality = ctx.settings.quality.model_copy(update={"docs_dir": str(tmp_path / "file" / "docs")})
    report = run_quality(
        replace(ctx, settings=ctx.settings.model_copy(update={"quality": quality})), ["silver.flights"]
    )
    assert (report.docs, report.success, _recorded(ctx.tables).count()) == (None, True, 5)
    assert "file/docs cannot be written" in caplog.text


def test_freshness_volume_and_drift_are_seen_until_they_are_accepted(ctx: JobContext) -> None:
    text = """table: silver.flights
on_failure: block
expectations:
  - {type: expect_table_to_be_fresh, column: at, max_age: 2h}
  - {type: expect_table_volume_to_be_usual, max_change_percent: 50}
  - {type: expect_table_schema_to_be_unchanged}"""
    ctx = _with_suites(ctx, whole=text)
    tables, now = ctx.tables, datetime.now(UTC)
    tables.replace(FLIGHTS, tables.spark.createDataFrame([(1, now - timedelta(hours=1))] * 4, "a INT, at TIMESTAMP"))
    assert run_quality(ctx).success
    tables.replace(
        FLIGHTS, tables.spark.createDataFrame([("1", now - timedelta(hours=3), 2)], "a STRING, at TIMESTAMP, b INT")
    )
    for _ in range(2):  # it does not become usual by being seen twice
        with pytest.raises(QualityGateClosed) as caught:
            run_quality(ctx)
        for part in (
            "fresh(at) failed newest 20",
            "usual failed 1 rows, usual 4",
            "unchanged failed added b, retyped a",
        ):
            assert part in caught.value.message
    with pytest.raises(
        QualityGateClosed, match=r"1 blocking expectation did not pass: silver\.flights expect_table_to_be_fresh"
    ):
        run_quality(ctx, ["whole"], accept=True)
    with pytest.raises(QualityGateClosed, match="1 blocking expectation did not pass"):
        run_quality(ctx)
    latest = {row["expectation"]: row["outcome"] for row in latest_checks(ctx).collect()}
    assert sorted(latest.values()) == ["failed", "passed", "passed"], "of five runs the last one"
    assert latest["expect_table_to_be_fresh"] == "failed"


@pytest.mark.long
def test_rows_that_cannot_be_told_or_are_too_many_are_not_set_aside(ctx: JobContext) -> None:
    _flights(ctx.tables, GOOD)
    own_sql = "{type: unexpected_rows_expectation, unexpected_rows_query: 'select %s from {batch} where distance > 5'}"
    ctx = _with_suites(
        ctx, a=f"table: silver.flights\non_failure: quarantine\nexpectations: [{own_sql % 'count(*) as n'}]"
    )
    with pytest.raises(QualityGateClosed, match=r"did not pass: silver\.flights unexpected_rows_expectation error"):
        run_quality(ctx)
    ctx = _with_suites(ctx, a=f"table: silver.flights\non_failure: quarantine\nexpectations: [{own_sql % '*'}]")
    report = run_quality(ctx)
    assert (report.held, report.success, quarantined_rows(ctx)) == (2, False, {"silver.flights": 2})
    few = ctx.settings.quality.model_copy(update={"max_quarantined_rows": 1})
    _flights(ctx.tables, [*GOOD, ("4", "UA", "EWR", 6, "arrived", False, "p4")])
    with pytest.raises(QualityGateClosed):
        run_quality(replace(ctx, settings=ctx.settings.model_copy(update={"quality": few})))
    assert _recorded(ctx.tables).where("observed LIKE '%more than quality.max_quarantined_rows%'").count() == 1
    assert quarantined_rows(ctx) == {"silver.flights": 2}, (
        "as long as it is not known which rows are good, none is let go"
    )


@pytest.mark.long
def test_a_suite_that_was_another_one_meanwhile_looks_at_all_rows_again(ctx: JobContext) -> None:
    ctx.tables.create(FLIGHTS, schema_of(COLUMNS), properties={CHANGE_FEED: "true"})
    ctx.tables.append(
        FLIGHTS, ctx.spark.createDataFrame([*GOOD, ("4", "UA", "EWR", -5, "arrived", False, "p4")], COLUMNS)
    )
    for on_failure, held in (("quarantine", 1), ("warn", 0), ("quarantine", 1)):
        wanted = "[{type: expect_column_values_to_be_between, column: distance, min_value: -1}]"
        text = f"table: silver.flights\nrows: changed\non_failure: {on_failure}\nexpectations: {wanted}"
        run_quality(_with_suites(ctx, a=text))
        assert quarantined_rows(ctx) == {"silver.flights": held}
        run_quality(_with_suites(ctx, a=text))
        assert quarantined_rows(ctx) == {"silver.flights": held}
    assert [row[0] for row in _recorded(ctx.tables).orderBy("ran_at").select("scope").collect()] == [
        "all",
        "changed",
    ] * 3

    changes, older = Path(ctx.tables.lake.path(FLIGHTS)) / "_change_data", set[Path]()
    for where in ("_key = '1'", "true"):
        ctx.spark.sql(f"UPDATE {ctx.tables.lake.sql(FLIGHTS)} SET status = 'late' WHERE {where}")
        older = older or set(changes.rglob("*.parquet"))
    for file in older:  # as VACUUM does
        file.unlink()
    assert [check.scope for check in run_quality(_with_suites(ctx, a=text)).checks] == ["all"]


def test_rows_that_a_configuration_without_their_suite_released_are_checked_again(ctx: JobContext) -> None:
    ctx.tables.create(FLIGHTS, schema_of(COLUMNS), properties={CHANGE_FEED: "true"})
    wrong = ("4", "UA", "EWR", -5, "arrived", False, "p4")
    ctx.tables.append(FLIGHTS, ctx.spark.createDataFrame([*GOOD, wrong], COLUMNS))
    text = """table: silver.flights
rows: changed
on_failure: quarantine
expectations: [{type: expect_column_values_to_be_between, column: distance, min_value: -1}]"""
    run_quality(_with_suites(ctx, rows=text))
    other = "table: silver.flights\non_failure: warn\nexpectations: [{type: expect_table_schema_to_be_unchanged}]"
    (Path(ctx.settings.quality.docs_dir).parent / "quality" / "rows.yml").unlink()
    run_quality(_with_suites(ctx, other=other))
    assert quarantined_rows(ctx) == {"silver.flights": 0}
    for scope in ("all", "changed"):
        (check,) = run_quality(_with_suites(ctx, rows=text), ["rows"]).checks
        assert (check.scope, quarantined_rows(ctx)) == (scope, {"silver.flights": 1})


def test_a_table_check_that_breaks_is_an_error_of_the_suite(ctx: JobContext) -> None:
    _flights(ctx.tables, GOOD)
    text = """table: silver.flights
on_failure: warn
expectations:
  - {type: expect_table_to_be_fresh, column: nothing, max_age: 2h}
  - {type: expect_table_volume_to_be_usual, max_change_percent: 50%}
  - {type: expect_table_schema_to_be_unchanged}"""
    ctx = _with_suites(ctx, whole=text)
    report = run_quality(ctx)
    assert [check.outcome for check in report.checks] == ["error", "error", "passed"]
    assert "nothing" in json.loads(report.checks[0].observed)["error"]
    with pytest.raises(QualityGateClosed, match=r"expect_table_to_be_fresh.* error") as caught:
        run_quality(_with_suites(ctx, whole=text.replace("warn", "block")))
    assert caught.value.is_broken


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
    assert all(
        check.unexpected_count is None and "\n" not in json.loads(check.observed)["error"] for check in checks[:3]
    )


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
    ("where", "table", "message"),
    [("nothing > 1", "silver.flights", "UNRESOLVED_COLUMN"), ("a", "silver.gone", "not there yet")],
)
def test_a_suite_that_cannot_run_closes_a_blocking_gate(ctx: JobContext, where: str, table: str, message: str) -> None:
    _flights(ctx.tables, GOOD)
    ctx = _with_suites(
        ctx,
        a=f"table: {table}\nwhere: {where}\non_failure: block\n"
        "expectations: [{type: expect_column_to_exist, column: a}]",
    )
    with pytest.raises(QualityGateClosed, match="expect_column_to_exist"):
        run_quality(ctx)
    (row,) = _recorded(ctx.tables).collect()
    assert (row["outcome"], row["success"]) == ("error", False)
    assert message in json.loads(row["observed"])["error"]


def test_an_argument_of_the_wrong_type_is_one_line_with_its_file(tables: Tables, tmp_path: Path) -> None:
    suite = _suite("{type: expect_column_values_to_be_between, column: a, min_value: many}")
    with pytest.raises(
        ConfigurationError, match=r"a\.yml: expectations, 1 \(expect_column_values_to_be_between\): min_value: "
    ) as caught:
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


def test_a_folder_that_is_not_there_does_not_open_the_gate(ctx: JobContext) -> None:
    quality = ctx.settings.quality.model_copy(update={"suites_dir": "nowhere"})
    with pytest.raises(ConfigurationError, match=r"there is no folder nowhere → correct quality\.suites_dir"):
        run_quality(replace(ctx, settings=ctx.settings.model_copy(update={"quality": quality})))


def test_rows_are_quarantined_for_fields_with_any_name(ctx: JobContext) -> None:
    fields = ("due.date", "a`b", "it's", "unit price", "$x", "Größe", "Name", "c.city")
    table, columns = TableName("silver", "odd"), ", ".join(f"`{name.replace('`', '``')}` STRING" for name in fields)
    # why column mapping: Delta stores no name with a space without it
    ctx.tables.create(
        table,
        schema_of(f"_key STRING, {columns}, c STRUCT<city: STRING, town: STRING>, _deleted BOOLEAN, _position STRING"),
        properties={"delta.columnMapping.mode": "name"},
    )
    good = ("x",) * len(fields)
    rows = [("0", *good, ("x", "x"), False, "p0")]
    for number in range(len(fields)):
        rows.append((str(number + 1), *good[:number], None, *good[number + 1 :], ("x", "x"), False, "p1"))
    rows.append(("nested", *good, (None, None), False, "p1"))
    ctx.tables.append(table, ctx.spark.createDataFrame(rows, ctx.tables.read(table).schema))
    used = [*fields[:-2], "name", "c.city"]
    expectations = [{"type": "expect_column_values_to_not_be_null", "column": name} for name in used]
    expectations += [
        {"type": "expect_column_values_to_not_be_null", "column": name} for name in ("`due.date`", "c.town")
    ]
    text = json.dumps({"table": "silver.odd", "on_failure": "quarantine", "expectations": expectations})
    report = run_quality(_with_suites(ctx, odd=text))
    assert [(check.column, check.outcome, check.failing) for check in report.checks] == [
        *((name, "failed", (str(number),)) for number, name in enumerate(used, start=1)),
        ("`due.date`", "failed", ("1",)),
        ("c.town", "failed", ("nested",)),
    ]
    assert quarantined_rows(ctx) == {"silver.odd": len(fields) + 1}
