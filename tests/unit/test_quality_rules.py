from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from documents import ROOT

from scripts.reference import columns_of
from strandline.errors import ConfigurationError, QualityGateClosed
from strandline.jobs.doctor.file_checks import examine_files
from strandline.jobs.doctor.findings import Notes
from strandline.model.table_schemas import QUALITY_DDL
from strandline.model.tables import TableName
from strandline.quality.gate import load_suites
from strandline.quality.results import CheckResult, QualityReport, raise_if_gate_closed, report_rows
from strandline.quality.rules import Expectation, ExpectationKind, Suite, parse_suites, select
from strandline.quality.table_checks import TABLE_KINDS
from strandline.settings.configuration import Settings

KNOWN = {
    "expect_column_values_to_not_be_null": ExpectationKind(("column", "mostly"), "row"),
    "expect_column_values_to_be_in_set": ExpectationKind(("column", "value_set"), "row"),
    "expect_column_values_to_be_unique": ExpectationKind(("column",), "rows"),
    "expect_table_row_count_to_be_between": ExpectationKind(("min_value", "max_value")),
    **TABLE_KINDS,
}
NOT_NULL = "expectations: [{type: expect_column_values_to_not_be_null, column: a}]"


def test_a_file_becomes_a_suite() -> None:
    text = "table: silver.flights\nwhere: NOT _deleted\non_failure: block\nexpectations:\n"
    text += "  - {type: expect_column_values_to_be_in_set, column: carrier, value_set: [NO, ON, yes, true, 1]}\n"
    text += "  - {type: expect_table_row_count_to_be_between, min_value: 1}\n"
    suites = parse_suites({"conf/quality/flights.yml": text}, KNOWN)
    expected = (
        Expectation(
            "expect_column_values_to_be_in_set", {"column": "carrier", "value_set": ["NO", "ON", "yes", True, 1]}
        ),
        Expectation("expect_table_row_count_to_be_between", {"min_value": 1}),
    )
    table = TableName("silver", "flights")
    assert suites == [Suite("flights", "conf/quality/flights.yml", table, "block", expected, "NOT _deleted")]
    assert [item.column for item in suites[0].expectations] == ["carrier", None]


def test_omitted_suite_settings_have_defaults() -> None:
    (suite,) = parse_suites({"a.yml": f"table: gold.a\n{NOT_NULL}"}, KNOWN)
    assert (suite.on_failure, suite.where) == ("warn", None)


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("", ["a mapping with table and expectations is expected"]),
        ("- a", ["a mapping with table and expectations is expected"]),
        ("a: [", ["not YAML at line 1"]),
        ("a: &x [*y]", ["not YAML at line 1"]),
        ("a: \x00", ["not YAML"]),
        ("a: !!python/object/apply:os.system ['true']", ["not YAML at line 1"]),
        (f"table: silver.a\ntable: silver.b\n{NOT_NULL}", ["not YAML", "key table stands twice"]),
        (f"table: silver.a\n{NOT_NULL}\n? [x, y]\n: 1", ["not YAML at line 3: found unhashable key"]),
        (f"tabel: silver.a\n{NOT_NULL}", ["unknown key tabel (did you mean table?)", "table: layer.name is expected"]),
        (f"table: flights\n{NOT_NULL}", ["table: layer.name is expected"]),
        (f"table: sliver.a\n{NOT_NULL}", ["there is no layer sliver (did you mean silver?)"]),
        (f"table: silver.a`; drop\n{NOT_NULL}", ["table: layer.name is expected"]),
        (f"table: silver.a\nwhere: 3\n{NOT_NULL}", ["where: a condition in SQL is expected"]),
        (f"table: gold.a\non_failure: quarantine\n{NOT_NULL}", ["on_failure: quarantine is for silver tables"]),
        (f"table: bronze.a\nrows: changed\n{NOT_NULL}", ["rows: changed is for silver tables"]),
        (f"table: silver.a\nrows: new\n{NOT_NULL}", ["rows: new (there is: all, changed)"]),
        (
            "table: silver.a\nrows: changed\nexpectations: [{type: expect_column_values_to_be_unique, column: a}]",
            ["expectations, 1 (expect_column_values_to_be_unique): it looks at more than one row"],
        ),
        (
            "table: silver.a\non_failure: quarantine\nexpectations: [{type: expect_table_schema_to_be_unchanged}]",
            ["it is about the table, no row is at fault"],
        ),
        (
            "table: silver.a\non_failure: quarantine\n"
            "expectations: [{type: expect_column_values_to_not_be_null, column: a, mostly: 0.9}]",
            ["in quarantine each stands for itself"],
        ),
        (
            "table: silver.a\nexpectations: [{type: expect_table_to_be_fresh}]",
            ["(expect_table_to_be_fresh): max_age is missing"],
        ),
        (f"table: silver.a\non_failure: blok\n{NOT_NULL}", ["on_failure: blok (did you mean block?)"]),
        (f"table: silver.a\non_failure: [block]\n{NOT_NULL}", ["on_failure: ['block']"]),
        ("table: silver.a", ["expectations: a list of at least one is expected"]),
        ("table: silver.a\nexpectations: []", ["expectations: a list of at least one is expected"]),
        (
            "table: silver.a\nexpectations: [a, {column: b}, {type: 1}]",
            ["expectations, 1: a mapping", "expectations, 2:", "expectations, 3:"],
        ),
        (
            "table: silver.a\nexpectations: [{type: expect_column_values_to_not_be_nul, column: a}]",
            [
                "unknown expectation expect_column_values_to_not_be_nul "
                "(did you mean expect_column_values_to_not_be_null?)"
            ],
        ),
        (
            "table: silver.a\nexpectations: [{type: expect_table_row_count_to_be_between, min_vlaue: 1}]",
            [
                "expectations, 1 (expect_table_row_count_to_be_between): "
                "unknown argument min_vlaue (did you mean min_value?)"
            ],
        ),
    ],
)
def test_every_problem_is_named_with_its_file(text: str, messages: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_suites({"conf/quality/a.yml": text, "b.yml": "- nothing"}, KNOWN)
    assert all(message in caught.value.message for message in messages), caught.value.message
    assert caught.value.message.count("conf/quality/a.yml: ") >= 1
    assert "b.yml: a mapping" in caught.value.message
    assert "\n" not in str(caught.value)


def test_suites_are_chosen_by_name_or_table() -> None:
    suites = parse_suites({f"{name}.yml": f"table: silver.t_{name}\n{NOT_NULL}" for name in "abc"}, KNOWN)
    assert [suite.name for suite in select(suites, [])] == ["a", "b", "c"]
    assert [suite.name for suite in select(suites, ["c", "silver.t_a"])] == ["a", "c"]
    with pytest.raises(ConfigurationError, match=r"no suite silver\.t_x \(did you mean"):
        select(suites, ["silver.t_x"])


def _check(outcome: str, on_failure: str) -> CheckResult:
    table = TableName("silver", "a")
    return CheckResult(table, "a", "expect_x", "c", "{}", outcome, '{"rows": ["k1"]}', 1, on_failure)  # type: ignore[arg-type]  # why: cases give plain words


@pytest.mark.parametrize(
    ("outcome", "on_failure", "closed"),
    [
        ("passed", "block", False),
        ("failed", "block", True),
        ("error", "block", True),
        ("failed", "warn", False),
        ("error", "warn", False),
        ("failed", "quarantine", False),
        ("error", "quarantine", True),
    ],
)
def test_only_a_blocking_expectation_that_did_not_pass_closes_the_gate(
    outcome: str, on_failure: str, closed: bool
) -> None:
    report = QualityReport(
        "r", datetime(2026, 1, 1, tzinfo=UTC), (_check("passed", "block"), _check(outcome, on_failure)), Path("docs")
    )
    assert report.success == (outcome == "passed")
    passed = "2 of 2" if outcome == "passed" else "1 of 2"
    assert report.summary().startswith(f"{passed} expectations passed")
    assert report.summary().endswith("; pages: docs")
    assert {name for row in report_rows(report) for name in row} == {name for name, _, _ in columns_of(QUALITY_DDL)}
    if not closed:
        raise_if_gate_closed(report)
        return
    row = r"for 1 row: key #[0-9a-f]{12} → see docs"
    with pytest.raises(
        QualityGateClosed,
        match=rf"1 blocking expectation did not pass: silver\.a expect_x\(c\) {outcome} {row}",
    ) as caught:
        raise_if_gate_closed(report)
    assert caught.value.exit_code == 5
    assert "k1" not in str(caught.value)
    with pytest.raises(QualityGateClosed, match="for 1 row: key k1 →"):
        raise_if_gate_closed(replace(report, show_keys=True))


_WITHOUT_SUITES = """
import sys
from pathlib import Path
import strandline.jobs.run
from strandline.quality.gate import load_suites
print(load_suites(Path(sys.argv[1])), "great_expectations" in sys.modules)
"""


def test_suites_without_great_expectations_name_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "great_expectations", None)
    monkeypatch.delitem(sys.modules, "strandline.quality.expectations", raising=False)
    (tmp_path / "orders.yml").write_text("table: silver.orders\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"Great Expectations is not installed → pip install .*\[quality\]"):
        load_suites(tmp_path)
    notes = Notes()
    examine_files(notes, Settings(quality={"suites_dir": str(tmp_path)}))  # type: ignore[arg-type]  # why: pydantic builds the section
    (finding,) = (each for each in notes.sorted() if each.check == "quality.files")
    assert (finding.severity, finding.exit_code, "[quality]" in finding.fix) == ("error", 2, True)


def test_a_run_without_suites_does_not_load_great_expectations(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _WITHOUT_SUITES, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] False"
