"""A change of rows in this process: what it does if other commits came first."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from strandline.io.delta_log.changeable_table import ONLY_SPARK, ChangeableTable, TableChange
from strandline.io.delta_log.local_folder import LocalFolder
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.model.tables import Lake, TableName

_ROWS = pa.table({"_key": ["a", "b"], "n": [1, 2]})


@pytest.mark.parametrize("cleaned", [False, True], ids=["their log is there", "log clean-up has removed it"])
def test_a_change_behind_other_commits_is_not_made(tmp_path: Path, cleaned: bool) -> None:
    write_deltalake(str(tmp_path), _ROWS)
    opened = ChangeableTable.open(LocalFolder(tmp_path), key="_key")
    assert opened is not None
    for _ in range(3):
        write_deltalake(str(tmp_path), _ROWS, mode="append")
    if cleaned:
        DeltaTable(str(tmp_path)).create_checkpoint()
        for version in range(3):
            (tmp_path / "_delta_log" / f"{version:020}.json").unlink()
    before = sorted(tmp_path.rglob("*"))
    assert not opened.commit(TableChange(opened.files, rows=_ROWS))
    assert sorted(tmp_path.rglob("*")) == before, "a commit below a checkpoint would be read by nobody"
    assert DeltaTable(str(tmp_path)).to_pyarrow_table().num_rows == 8


Actions = dict[str, dict[str, Any]]


def _protocol(reader: int, writer: int, **features: list[str]) -> Callable[[Actions], None]:
    def change(actions: Actions) -> None:
        actions["protocol"] = {"minReaderVersion": reader, "minWriterVersion": writer, **features}

    return change


def _property(name: str, value: str) -> Callable[[Actions], None]:
    return lambda actions: actions["metaData"]["configuration"].update({name: value})


def _column(kind: Any, *, nullable: bool = True) -> Callable[[Actions], None]:
    def change(actions: Actions) -> None:
        schema = json.loads(actions["metaData"]["schemaString"])
        schema["fields"].append({"name": "own", "type": kind, "nullable": nullable, "metadata": {}})
        actions["metaData"]["schemaString"] = json.dumps(schema)

    return change


def _moved(to: str) -> Callable[[Actions], None]:
    return lambda actions: actions["add"].update(path=f"{to}/{actions['add']['path']}")


_FOR_SPARK = {
    "reader version 4": _protocol(4, 8),
    "writer version 8": _protocol(1, 8),
    "an unknown feature of readers": _protocol(3, 7, readerFeatures=["new"], writerFeatures=["new"]),
    "an unknown feature of writers": _protocol(1, 7, writerFeatures=["new"]),
    "a file of another table": _moved("file:///elsewhere"),
    "a file of another table, as a path": _moved("/elsewhere"),
}
_FOR_SPARK_TO_CHANGE = _FOR_SPARK | {
    "append-only, in capitals": _property("delta.appendOnly", "TRUE"),
    "a constraint, in capitals": _property("delta.CONSTRAINTS.positive", "n > 0"),
    "a column that is not null": _column("string", nullable=False),
    "a column without a type": _column("void"),
    "an unknown type": _column("geometry(4326)"),
}


def table_with(folder: Path, change: Callable[[Actions], None]) -> LocalFolder:
    """Return a table whose first commit is changed as another program would have written it."""
    write_deltalake(folder, _ROWS)
    commit = folder / "_delta_log" / f"{0:020}.json"
    actions: Actions = {}
    for line in commit.read_text("utf-8").splitlines():
        actions |= json.loads(line)
    change(actions)
    commit.write_text("".join(json.dumps({kind: action}) + "\n" for kind, action in actions.items()), "utf-8")
    return LocalFolder(folder)


@pytest.mark.parametrize("change", _FOR_SPARK_TO_CHANGE.values(), ids=_FOR_SPARK_TO_CHANGE)
def test_a_table_that_only_spark_can_change_is_not_opened(tmp_path: Path, change: Callable[[Actions], None]) -> None:
    folder = table_with(tmp_path, change)
    with contextlib.suppress(ONLY_SPARK):
        assert ChangeableTable.open(folder, key="_key") is None


@pytest.mark.parametrize("change", _FOR_SPARK.values(), ids=_FOR_SPARK)
def test_a_table_that_delta_rs_does_not_know_is_neither_queried_nor_written_by_it(
    tmp_path: Path, change: Callable[[Actions], None]
) -> None:
    tables, table = DeltaRsTables(Lake(root=str(tmp_path))), TableName("silver", "a")
    table_with(tmp_path / "silver" / "a", change)
    assert not tables.can_write(table)
    assert not tables.can_query(table)
    assert not tables.can_use(table, [])
    assert not tables.can_use(TableName("bronze", "b"), [table])


def test_a_key_beyond_the_year_9999_is_read(tmp_path: Path) -> None:
    days = pa.table({"day": pa.array([0, 4_000_000], pa.date32())})
    write_deltalake(tmp_path, days)
    opened = ChangeableTable.open(LocalFolder(tmp_path), key="day")
    assert opened is not None
    assert [(file.smallest, file.largest) for file in opened.files] == [(None, None)]
    assert opened.read(opened.files[0]) == days
