"""Test cases of gold SQL in YAML: given rows, expected rows. They need no lake and no Python.

# tests/fleet_age.yml: cases of gold.fleet_age
- name: a plane without a year has no age
  given:
    silver.flights: [{carrier: UA, tailnum: N1}]
    silver.planes: [{_id: N1, year: null, seats: 100}]
  expect: [{carrier: UA, planes: 1, average_age: null}]
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from strandline.errors import ConfigurationError
from strandline.gold.statement import suggestion
from strandline.model.tables import LAYERS, TableName, quoted
from strandline.model.yaml_input import parse_yaml
from strandline.plain_text import printable

_KEYS = ("name", "given", "expect")
_TABLE_KEYS = ("columns", "rows")


@dataclass(frozen=True)
class InputTable:
    """Rows of one table. *columns* is DDL; None: inferred from the rows."""

    rows: Sequence[Mapping[str, Any]]
    columns: str | None = None

    def ddl(self) -> str:
        """Return the columns as DDL.

        Raises:
            ValueError: There are neither columns nor rows.
        """
        if self.columns is not None:
            return self.columns
        if not self.rows:
            raise ValueError("a table without rows needs columns")
        return _fields_ddl([dict(row) for row in self.rows], " ")


@dataclass(frozen=True)
class Case:
    """One test of one node."""

    node: str
    name: str
    tables: Mapping[TableName, InputTable]
    expect: Sequence[Mapping[str, Any]] = field(default_factory=tuple)


def load_cases(folder: Path) -> list[Case]:
    """Read every ``*.yml`` file of *folder*. A missing folder has no cases.

    I/O: reads the files; writes nothing.

    Raises:
        ConfigurationError: A file cannot be read or is invalid. The message lists the problems of all files.
    """
    problems: list[str] = []
    cases: list[Case] = []
    try:
        texts = {str(file): file.read_text(encoding="utf-8-sig") for file in sorted(folder.glob("*.yml"))}
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "a file is not UTF-8"
        raise ConfigurationError(
            f"the cases in {folder} cannot be read: {why}", next_step="correct gold.tests_dir"
        ) from None
    for file, text in texts.items():
        errors: list[str] = []
        cases += parse_cases(file, text, errors)
        problems += [f"{file}: {problem}" for problem in errors]
    if problems:
        raise ConfigurationError("; ".join(problems), next_step="correct the named files")
    return cases


def parse_cases(file: str, text: str, problems: list[str]) -> list[Case]:
    """Parse the cases of one file. The file name is the node name. Pure, except that it appends to *problems*."""
    try:
        content = parse_yaml(text)
    except ValueError as error:
        problems.append(str(error))
        return []
    if not isinstance(content, list) or not content:
        problems.append("a list of cases is expected, each with name, given and expect")
        return []
    return [case for number, item in enumerate(content, 1) if (case := _case(file, number, item, problems)) is not None]


def _case(file: str, number: int, item: Any, problems: list[str]) -> Case | None:
    if (
        not isinstance(item, dict)
        or not isinstance(item.get("given"), dict)
        or not isinstance(item.get("expect"), list)
    ):
        problems.append(f"case {number}: a mapping with given (tables) and expect (a list of rows) is expected")
        return None
    problems += [
        f"case {number}: unknown key {printable(str(key))}{suggestion(str(key), _KEYS)}"
        for key in item
        if key not in _KEYS
    ]
    tables = {}
    for name, rows in item["given"].items():
        layer, _, table = str(name).partition(".")
        if layer not in LAYERS or not table:
            problems.append(f"case {number}: {printable(str(name))} is not layer.name")
            continue
        tables[TableName(layer, table)] = _table_rows(f"case {number}, {printable(str(name))}", rows, problems)
    if not all(isinstance(row, dict) for row in item["expect"]):
        problems.append(f"case {number}, expect: each row is a mapping")
        return None
    return Case(PurePath(file).stem, str(item.get("name", f"case {number}")), tables, item["expect"])


def _table_rows(where: str, content: Any, problems: list[str]) -> InputTable:
    columns = None
    if isinstance(content, dict):
        problems += [
            f"{where}: unknown key {printable(str(key))}{suggestion(str(key), _TABLE_KEYS)}"
            for key in content
            if key not in _TABLE_KEYS
        ]
        columns, content = content.get("columns"), content.get("rows", [])
    if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
        problems.append(f"{where}: a list of rows, each a mapping, is expected; or columns (DDL) and rows")
        return InputTable(())
    return InputTable(content, columns)


def _fields_ddl(rows: Sequence[Mapping[str, Any]], separator: str) -> str:
    names = dict.fromkeys(str(name) for row in rows for name in row)
    return ", ".join(f"{quoted(name)}{separator}{_inferred_type([row.get(name) for row in rows])}" for name in names)


_TYPES = (
    ({bool}, "BOOLEAN"),
    ({int}, "BIGINT"),
    ({int, float}, "DOUBLE"),
    ({datetime.datetime}, "TIMESTAMP"),
    ({datetime.date}, "DATE"),
)


def _inferred_type(values: Sequence[Any]) -> str:
    """Return the narrowest type that holds all *values*, as DDL. STRING if no other type does."""
    present = [value for value in values if value is not None]
    python_types = {type(value) for value in present}
    if python_types == {dict}:
        return f"STRUCT<{_fields_ddl(present, ': ')}>"
    if python_types == {list}:
        return f"ARRAY<{_inferred_type([item for value in present for item in value])}>"
    return next((name for types, name in _TYPES if python_types and python_types <= types), "STRING")
