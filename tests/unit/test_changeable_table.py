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

from strandline.io.delta_log.appended_rows import AppendLimits, appended_rows
from strandline.io.delta_log.changeable_table import MOST_BYTES, ONLY_SPARK, ChangeableTable, TableChange
from strandline.io.delta_log.local_folder import LocalFolder
from strandline.io.delta_log.parquet_file import TooLarge
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


_LINE = b'{"level":"INFO","logger":"shop.checkout","message":"cart %08d was paid","tags":["a","b"]}'


def documents(*, equal: bool, size: int = 256 << 10, rows: int = 800) -> pa.Table:
    """Return 200 MiB of documents that compress a hundredfold. Parquet stores equal ones once."""
    texts = [(_LINE % (0 if equal else number)) * (size // len(_LINE)) for number in range(rows)]
    return pa.table({"_key": [f"{number:04}" for number in range(rows)], "document": pa.array(texts, pa.binary())})


def stored(path: Path, rows: pa.Table) -> tuple[LocalFolder, ChangeableTable]:
    """Return a table with *rows* in one file of this process's own, opened anew."""
    write_deltalake(path, rows.slice(0, 0))
    empty = ChangeableTable.open(LocalFolder(path), key="_key")
    assert empty is not None
    assert empty.commit(TableChange(rows=rows))
    opened = ChangeableTable.open(LocalFolder(path), key="_key")
    assert opened is not None
    return LocalFolder(path), opened


@pytest.mark.parametrize("equal", [False, True], ids=["different documents", "equal documents"])
def test_rows_are_bounded_by_their_bytes_before_compression(tmp_path: Path, equal: bool) -> None:
    rows = documents(equal=equal)
    folder, opened = stored(tmp_path, rows)
    (file,) = opened.files
    assert (file.size * 100 < rows.nbytes, rows.nbytes > 3 * MOST_BYTES) == (True, True)
    before, kept = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(kept)
    try:
        assert opened.read(file, ["_key"]).num_rows == rows.num_rows
        with pytest.raises(TooLarge):
            opened.read(file)
        limits = AppendLimits(rows=10_000, size=32 << 20)
        assert appended_rows(folder, 0, 1, rows.schema, limits) is None
        assert appended_rows(folder, 0, 1, pa.schema([rows.schema.field("_key")]), limits) is not None
        assert kept.max_memory() < 3 * MOST_BYTES
    finally:
        pa.set_memory_pool(before)


def test_the_reads_of_a_table_are_bounded_together(tmp_path: Path) -> None:
    rows = documents(equal=False, rows=160)
    _, opened = stored(tmp_path, rows)
    assert opened.read(opened.files[0]) == rows
    with pytest.raises(TooLarge):
        opened.read(opened.files[0])
