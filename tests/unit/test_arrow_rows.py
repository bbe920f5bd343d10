"""Rows as an Arrow table, without pandas."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.io.tables.arrow_rows import table_of

SCHEMA = pa.schema([
    ("text", pa.string()),
    ("at", pa.timestamp("us", tz="UTC")),
    ("count", pa.int64()),
    ("raw", pa.binary()),
    ("names", pa.list_(pa.string())),
    ("holds", pa.bool_()),
])  # fmt: skip
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": st.text(st.characters(exclude_categories=["Cs"])),
    "at": st.datetimes(timezones=st.just(UTC)),
    "count": st.integers(-(2**63), 2**63 - 1),
    "raw": st.binary(),
    "names": st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), max_size=3),
    "holds": st.booleans(),
}
ROWS = st.lists(st.fixed_dictionaries({name: st.none() | value for name, value in VALUES.items()}), max_size=20)


@given(ROWS)
def test_the_table_is_what_arrow_would_make(rows: list[dict[str, Any]]) -> None:
    made = table_of(rows, SCHEMA)
    made.validate(full=True)
    assert made.equals(pa.Table.from_pylist(rows, schema=SCHEMA))


def test_a_column_that_a_row_lacks_is_null() -> None:
    assert table_of([{"count": 1}], SCHEMA).to_pylist() == [dict.fromkeys(SCHEMA.names) | {"count": 1}]


@pytest.mark.parametrize(
    ("name", "value"), [("count", 2**63), ("count", "1"), ("at", datetime(2026, 1, 1)), ("raw", 1)]
)
def test_a_value_of_another_type_is_an_error(name: str, value: Any) -> None:
    with pytest.raises((OverflowError, TypeError)):
        table_of([{name: value}], SCHEMA)


_INSERT = """
import sys
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.model.tables import Lake, TableName
tables, table = DeltaRsTables(Lake(sys.argv[1])), TableName("control", "rows")
for name in ("a", "b", "a"):
    tables.insert_rows(table, "id STRING, n BIGINT", [{"id": name, "n": 1}], "id")
print(tables.version(table), "pandas" in sys.modules)
"""


def test_a_command_that_writes_a_row_does_not_wait_for_pandas(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _INSERT, str(tmp_path)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == ["2", "False"]
