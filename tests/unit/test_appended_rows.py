"""Rows that commits appended, read from the files that the commits name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, WriterProperties, write_deltalake

from strandline.io.delta_log.appended_rows import appended_files, appended_parts, appended_rows, files_of_version
from strandline.io.delta_log.local_folder import LocalFolder
from strandline.io.delta_log.table_folder import commit_name

_SCHEMA = pa.schema({"n": pa.int64(), "later": pa.string(), "s": pa.struct({"b": pa.int64()})})


@pytest.fixture
def folder(tmp_path: Path) -> LocalFolder:
    """A table of four commits, one row each: 0, 1, 2, 3."""
    for number in range(4):
        row = {"n": [number], "s": pa.array([{"a": 1, "b": number}], pa.struct({"a": pa.int64(), "b": pa.int64()}))}
        write_deltalake(str(tmp_path), pa.table(row), mode="append")
    return LocalFolder(tmp_path)


def read(
    folder: LocalFolder, after: int, through: int, *, rows: int = 1_000, size: int = 1 << 20
) -> list[dict[str, object]] | None:
    files = appended_files(folder, after, through, rows)
    found = None if files is None else appended_rows(folder, files, _SCHEMA, size)
    return None if found is None else found.to_pylist()


def test_rows_have_the_version_that_appended_them_and_nulls_for_columns_that_their_file_lacks(
    folder: LocalFolder,
) -> None:
    assert read(folder, 1, 3) == [
        {"n": number, "later": None, "s": {"b": number}, "_commit_version": number} for number in (2, 3)
    ]
    assert read(folder, 3, 3) == []


def test_a_compaction_and_a_change_of_properties_append_nothing(folder: LocalFolder) -> None:
    table = DeltaTable(folder.uri)
    table.optimize.compact()
    table.alter.set_table_properties({"a.b": "c"}, raise_if_not_exists=False)
    assert read(folder, 3, 5) == []
    found = read(folder, -1, 5)
    assert found is not None
    assert [row["n"] for row in found] == [0, 1, 2, 3]


def test_after_compaction_and_log_clean_up_all_rows_have_the_version_that_is_read(folder: LocalFolder) -> None:
    table = DeltaTable(folder.uri)
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    table.create_checkpoint()
    for version in range(4):
        (folder.path / commit_name(version)).unlink()
    newest = DeltaTable(folder.uri).version()
    assert read(folder, -1, newest) is None
    files = files_of_version(folder, newest, 4)
    assert files is not None
    rows = appended_rows(folder, files, _SCHEMA, 1 << 20)
    assert rows is not None
    assert sorted((row["n"], row["_commit_version"]) for row in rows.to_pylist()) == [(n, newest) for n in range(4)]
    assert files_of_version(folder, newest, 3) is None, "too many rows"
    assert files_of_version(folder, 2, 4) is None, "the version is gone"


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_the_parts_of_a_file_have_each_row_once_and_in_order(tmp_path: Path, parts: int) -> None:
    rows = pa.table({"n": list(range(100))})
    write_deltalake(str(tmp_path), rows, writer_properties=WriterProperties(max_row_group_size=20))
    folder = LocalFolder(tmp_path)
    files = appended_files(folder, -1, 0, 1_000)
    assert files is not None
    cut = files[0].cut(-(-files[0].size // parts))
    assert len(cut) == parts
    schema = pa.schema({"n": pa.int64()})
    tables = (rows for part in cut for rows in appended_parts(folder, part, schema, {}))
    assert [number for rows in tables for number in rows["n"].to_pylist()] == list(range(100))


def _restore(table: DeltaTable) -> None:
    table.restore(1)


def _delete(table: DeltaTable) -> None:
    table.delete("n = 0")


def _overwrite(table: DeltaTable) -> None:
    write_deltalake(table, pa.table({"n": [9]}), mode="overwrite", schema_mode="overwrite")


@pytest.mark.parametrize("change", [_restore, _delete, _overwrite])
def test_a_commit_that_does_more_than_append_is_not_known_here(
    folder: LocalFolder, change: Callable[[DeltaTable], None]
) -> None:
    change(DeltaTable(folder.uri))
    assert read(folder, 2, DeltaTable(folder.uri).version()) is None


def test_rows_whose_log_or_file_is_gone_are_not_known_here(folder: LocalFolder) -> None:
    paths = {row["path"] for row in pa.table(DeltaTable(folder.uri).get_add_actions()).to_pylist()}
    (folder.path / "_delta_log" / f"{1:020}.json").unlink()
    assert read(folder, 0, 3) is None
    assert read(folder, 1, 3) is not None
    for path in paths:
        (folder.path / path).unlink()
    with pytest.raises(FileNotFoundError):
        read(folder, 1, 3)


@pytest.mark.parametrize("limits", [{"rows": 1}, {"size": 100}])
def test_more_rows_than_the_limits_allow_are_not_read(folder: LocalFolder, limits: dict[str, int]) -> None:
    assert read(folder, 1, 3, **limits) is None
    assert read(folder, 2, 3, rows=1) is not None


def test_user_metadata_and_transactions_do_not_matter(folder: LocalFolder) -> None:
    said = CommitProperties(custom_metadata={"userMetadata": "proof"})
    write_deltalake(folder.uri, DeltaTable(folder.uri).to_pyarrow_table(), mode="append", commit_properties=said)
    found = read(folder, 3, 4)
    assert found is not None
    assert len(found) == 4
