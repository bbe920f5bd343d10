"""A table whose whole content is replaced by that of another one, in one commit."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from strandline.io.delta_log import replacement
from strandline.io.delta_log.local_folder import LocalFolder
from strandline.io.delta_log.mergeable_table import MergeableTable
from strandline.io.delta_log.replacement import replace_content


def opened(path: Path) -> MergeableTable:
    table = MergeableTable.open(LocalFolder(path), "_key")
    assert table is not None
    return table


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Path, Path]:
    """Two tables: of the second one, a file was added, and a file was written anew."""
    one, other = tmp_path / "one", tmp_path / "other"
    write_deltalake(one, pa.table({"_key": ["a"], "n": [1]}))
    DeltaTable(one).alter.set_table_properties({"of.one": "1"}, raise_if_not_exists=False)
    for number, key in enumerate("bcd"):
        write_deltalake(other, pa.table({"_key": [key], "n": [f"{number}"]}), mode="append")
    DeltaTable(other).delete("_key = 'c'")
    return one, other


def rows(path: Path, version: int | None = None) -> list[dict[str, object]]:
    found: list[dict[str, object]] = DeltaTable(path, version).to_pyarrow_table().to_pylist()
    return sorted(found, key=str)


def test_rows_columns_and_properties_are_those_of_the_other_table(tables: tuple[Path, Path]) -> None:
    one, other = tables
    assert replace_content(opened(one), opened(other), {"both": "2"})
    assert rows(one) == [{"_key": "b", "n": "0"}, {"_key": "d", "n": "2"}]
    assert rows(one, 0) == [{"_key": "a", "n": 1}], "the version before it can be read"
    table = DeltaTable(one)
    assert (table.version(), table.metadata().configuration) == (2, {"both": "2"})
    assert table.history(1)[0]["operation"] == "CREATE OR REPLACE TABLE AS SELECT"
    LocalFolder(other).remove_all()
    assert not other.exists()
    assert len(rows(one)) == 2, "the files stay"


def test_behind_another_commit_nothing_is_replaced(tables: tuple[Path, Path]) -> None:
    one, other = tables
    table = opened(one)
    write_deltalake(one, pa.table({"_key": ["x"], "n": [9]}), mode="append")
    files = sorted(one.iterdir())
    assert not replace_content(table, opened(other), {})
    assert len(rows(one)) == 2
    assert sorted(one.iterdir()) == files


def test_killed_before_its_commit_the_table_is_as_before(
    tables: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> bool:
        raise KeyboardInterrupt

    one, other = tables
    with monkeypatch.context() as patched:
        patched.setattr(replacement, "put_commit", killed)
        with pytest.raises(KeyboardInterrupt):
            replace_content(opened(one), opened(other), {})
    assert rows(one) == [{"_key": "a", "n": 1}]
