"""Files of an object store, read in parts."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import LocalStore

from strandline.io.delta_log.object_store import StoreFailure, StoreOptions
from strandline.io.delta_log.sorted_rewrite import _batches
from strandline.io.delta_log.store_folder import StoreFolder, opened_object

ROWS = 40_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a large data file of two row groups, and with a small file."""
    folder = tmp_path_factory.mktemp("store")
    text = [f"{number:06}" * 100 for number in range(ROWS)]
    table = pa.table({"number": pa.array(range(ROWS)), "text": text})
    pq.write_table(table, folder / "large.parquet", row_group_size=ROWS // 2, compression="none", use_dictionary=False)
    (folder / "small").write_bytes(b"0123456789")
    return folder


def test_a_rewrite_holds_a_part_of_a_large_file(folder: Path) -> None:
    store = LocalStore(folder)
    source, numbers = opened_object(store, "large.parquet"), []
    assert isinstance(source, pa.PythonFile), "no buffer with the whole file"
    for batch in _batches(source, pq.read_schema(folder / "large.parquet")):
        numbers += batch["number"].to_pylist()
    assert numbers == list(range(ROWS))


def test_a_file_that_is_removed_meanwhile_is_one_line(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "gone.parquet"
    file.write_bytes((folder / "large.parquet").read_bytes())
    source = opened_object(LocalStore(tmp_path), "gone.parquet")
    reader = pq.ParquetFile(source, buffer_size=1 << 20)
    file.unlink()
    with pytest.raises(StoreFailure, match=r"^gone\.parquet was removed while it was read → repeat the command$"):
        reader.read()


@pytest.mark.parametrize("name", ["large.parquet", "small"])
def test_an_object_is_read_from_any_place(folder: Path, name: str) -> None:
    source: Any = opened_object(LocalStore(folder), name)
    content = (folder / name).read_bytes()
    source.seek(-4, io.SEEK_END)
    assert (source.tell(), source.read(100)) == (len(content) - 4, content[-4:])
    source.seek(3)
    assert (source.read(5), source.tell()) == (content[3:8], 8)
    source.seek(len(content))
    assert source.read(1) == b""


def test_a_missing_object_is_a_missing_file(folder: Path) -> None:
    with pytest.raises(FileNotFoundError):
        opened_object(LocalStore(folder), "none")


def test_a_table_of_a_store_is_empty_until_it_has_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoreFolder, "_store", LocalStore(tmp_path))
    table = StoreFolder("s3://bucket/table", StoreOptions())
    assert table.is_empty()
    (tmp_path / "part").write_bytes(b"1")
    assert not table.is_empty()


def test_a_file_of_another_table_is_copied_by_the_store_and_the_other_table_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log goes last: after a kill there is still a table."""

    def local(uri: str, _: StoreOptions) -> LocalStore:
        return LocalStore(tmp_path / uri.removeprefix("s3://bucket/lake").removeprefix("/"), mkdir=True)

    monkeypatch.setattr("strandline.io.delta_log.store_folder.opened_store", local)
    table, other = (StoreFolder(f"s3://bucket/lake/{name}", StoreOptions()) for name in ("silver/a", "control/b"))
    for name in ("part", "_delta_log/1.json"):
        with other.writing(name) as file:
            file.write(b"rows")
    table.take("part", other)
    assert table.read("part") == b"rows"
    removed: list[list[str]] = []
    delete = obstore.delete

    def noted(store: Any, names: list[str]) -> None:
        removed.append(names)
        delete(store, names)

    monkeypatch.setattr(obstore, "delete", noted)
    other.remove_all()
    assert removed == [["part"], ["_delta_log/1.json"]]
    assert other.is_empty()
    assert table.read("part") == b"rows"
