from __future__ import annotations

from pathlib import Path

import pytest

from strandline.errors import ConfigurationError
from strandline.gold.cases import load_cases, parse_cases
from strandline.model.tables import TableName

A = TableName("silver", "a")


def test_types_are_read_from_the_rows() -> None:
    text = """- given:
    silver.a:
      - {i: 1, f: 1, t: NO, at: 2013-01-01T10:00:00Z, day: 2013-01-01, ok: true, s: {x: 1},
         l: [{y: a}, {z: 2}], n: null}
      - {i: null, f: 0.5, s: {x: 1.5}, t: 3}
  expect: []"""
    problems: list[str] = []
    (case,) = parse_cases("x/a.yml", text, problems)
    assert (case.node, case.name, problems) == ("a", "case 1", [])
    assert case.tables[A].ddl() == (
        "`i` BIGINT, `f` DOUBLE, `t` STRING, `at` TIMESTAMP, `day` DATE, `ok` BOOLEAN, `s` STRUCT<`x`: DOUBLE>, "
        "`l` ARRAY<STRUCT<`y`: STRING, `z`: BIGINT>>, `n` STRING"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a list of cases is expected"),
        ("- [", "not YAML at line 1"),
        ("- {given: {}}", "case 1: a mapping with given (tables) and expect"),
        ("- {given: {a: []}, expect: []}", "case 1: a is not layer.name"),
        ("- {given: {silver.a: 3}, expect: []}", "case 1, silver.a: a list of rows"),
        ("- {given: {silver.a: {colums: x}}, expect: []}", "unknown key colums (did you mean columns?)"),
        ("- {given: {silver.a: []}, expects: [], expect: []}", "unknown key expects (did you mean expect?)"),
        ("- {given: {silver.a: []}, expect: [3]}", "case 1, expect: each row is a mapping"),
    ],
)
def test_a_wrong_case_file_is_refused_with_its_name(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.yml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        load_cases(tmp_path)
    assert f"{tmp_path / 'a.yml'}: " in caught.value.message
    assert message in caught.value.message


def test_a_missing_folder_has_no_cases(tmp_path: Path) -> None:
    assert load_cases(tmp_path / "nothing") == []
