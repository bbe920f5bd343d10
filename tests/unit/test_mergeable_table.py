"""A MERGE by delta-rs: rows, conflicts, names, memory, and tables that are left to Spark."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, WriterProperties, write_deltalake

from strandline.io.delta_log import merge_memory, mergeable_table
from strandline.io.delta_log.appended_rows import appended_files, appended_rows
from strandline.io.delta_log.local_folder import LocalFolder
from strandline.io.delta_log.merge_memory import SMALL_BYTES
from strandline.io.delta_log.mergeable_table import ONLY_SPARK, MergeableTable
from strandline.io.delta_log.parquet_file import Budget, OldTime, TooLarge, read_data_file
from strandline.io.delta_log.stored_files import StoredFile, groups_of
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.model.merge_rule import NOTHING, Merged, MergeRule
from strandline.model.query import DATAFUSION
from strandline.model.tables import Lake, TableName

_ROWS = pa.table({"_key": ["a", "b"], "n": [1, 2]})


def opened(path: Path, key: str = "_key") -> MergeableTable:
    table = MergeableTable.open(LocalFolder(path), key)
    assert table is not None
    return table


def upsert(path: Path, rows: pa.Table, key: str = "_key", *, files: list[StoredFile] | None = None) -> Merged | None:
    """Replace the rows of the same key, and insert the others."""
    table, columns = opened(path, key), rows.schema.names
    rule = MergeRule((key,)).update([name for name in columns if name != key]).insert(columns)
    merged = table.merge(rows, rule, table.files if files is None else files)
    table.tidy()
    return merged


def behind_other_commits(path: Path, cleaned: bool) -> MergeableTable:
    """Return a table that was opened before three other commits. *cleaned*: log clean-up has removed theirs."""
    write_deltalake(str(path), _ROWS)
    table = opened(path)
    for _ in range(3):
        write_deltalake(str(path), _ROWS, mode="append")
    if cleaned:
        DeltaTable(str(path)).create_checkpoint()
        for version in range(3):
            (path / "_delta_log" / f"{version:020}.json").unlink()
    return table


def files_with(table: MergeableTable, *keys: str) -> list[StoredFile]:
    return [file for file, _ in table.find_keys(pa.chunked_array([[*keys]], pa.string()))]


def rows_in(path: Path, key: str = "_key") -> list[dict[str, Any]]:
    table = opened(path, key)
    parts = [read_data_file(table.folder, file.path, table.schema, Budget(SMALL_BYTES)) for file in table.files]
    found: list[dict[str, Any]] = pa.concat_tables(parts).to_pylist()
    return sorted(found, key=lambda row: str(row[key]))


# promise 2
@pytest.mark.parametrize("cleaned", [False, True], ids=["their log is there", "log clean-up has removed it"])
def test_a_merge_behind_other_commits_is_not_made(tmp_path: Path, cleaned: bool) -> None:
    table = behind_other_commits(tmp_path, cleaned)
    before = sorted((tmp_path / "_delta_log").iterdir())
    assert table.merge(_ROWS, MergeRule(("_key",)).update(["n"]), table.files) is None
    assert sorted((tmp_path / "_delta_log").iterdir()) == before, "a commit below a checkpoint would be read by nobody"
    assert len(rows_in(tmp_path)) == 8


# promise 2
@pytest.mark.parametrize("cleaned", [False, True], ids=["their log is there", "log clean-up has removed it"])
def test_properties_are_set_in_the_newest_version(tmp_path: Path, cleaned: bool) -> None:
    table = behind_other_commits(tmp_path, cleaned)
    assert table.set_properties({"test.a": "1"})
    newest = DeltaTable(str(tmp_path))
    assert (newest.version(), newest.metadata().configuration) == (4, {"test.a": "1"})


def test_a_merge_is_on_the_disk_with_its_feed_and_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_deltalake(tmp_path, _ROWS, configuration={"delta.enableChangeDataFeed": "true"})
    for number in range(8):
        upsert(tmp_path, pa.table({"_key": [f"c{number}"], "n": [number]}))
    before, synced = set(tmp_path.rglob("*")), set[Path]()
    monkeypatch.setattr("strandline.io.delta_log.local_folder.sync", synced.add)
    assert upsert(tmp_path, pa.table({"_key": ["a"], "n": [3]})) == Merged(0, 1, 0)
    new = set(tmp_path.rglob("*")) - before
    assert {path.suffix for path in new} >= {".json", ".parquet"}
    assert any("checkpoint" in path.name for path in new)
    assert any(path.parent.name == "_change_data" for path in new)
    assert new | {path.parent for path in new} <= synced


_KEYS = ("it's", 'a "key"', "back\\slash", "`tick`", "{brace}", "é" * 100, "", "\n", "\U0010ffff" * 40, "z" * 99)


# promise 2
@pytest.mark.parametrize("name", ["a.b", "it's", 'a "name"', "`tick`", "{brace}", "ALL CAPS", "s", "t"])
def test_names_and_keys_are_what_they_are(tmp_path: Path, name: str) -> None:
    for key in _KEYS:
        write_deltalake(tmp_path, pa.table({name: [key], "own": ["kept"]}), mode="append")
    table = opened(tmp_path, name)
    keys = sorted(_KEYS)
    for key in keys:
        assert files_with(table, key), "the file of the key is among them"
    rows = pa.table({name: [*keys, "new"]})
    rule = MergeRule((name,)).update([name], when=f"s.{DATAFUSION.name(name)} <> ''").insert([name])
    assert table.merge(rows, rule, files_with(table, *keys)) == Merged(1, len(keys) - 1, 0)
    expected = [{name: key, "own": "kept"} for key in keys] + [{name: "new", "own": None}]
    assert rows_in(tmp_path, name) == sorted(expected, key=lambda row: str(row[name]))


@pytest.mark.parametrize(
    "name", ["__delta_rs_operation", "__delta_rs_source", "__delta_rs_target_copy", "_change_type"]
)
def test_a_column_that_delta_rs_names_so_itself_is_left_to_spark(tmp_path: Path, name: str) -> None:
    rows = pa.table({"_key": ["a"], name: ["1"]})
    write_deltalake(tmp_path, rows, configuration={"delta.enableChangeDataFeed": "true"})
    with pytest.raises(ONLY_SPARK):
        upsert(tmp_path, rows)
    assert DeltaTable(tmp_path).version() == 0


_NESTED = pa.schema(
    {
        "_key": pa.string(),
        "o": pa.struct({"a": pa.int64(), "b": pa.struct({"c": pa.string()})}),
        "l": pa.list_(pa.struct({"d": pa.decimal128(38, 2), "at": pa.timestamp("us", tz="UTC")})),
    }
)
_AT = datetime(2026, 11, 28, 1, 2, 3, 456, UTC)
_VALUES = (
    {"o": None, "l": None},
    {"o": {"a": None, "b": None}, "l": []},
    {"o": {"a": 1, "b": {"c": None}}, "l": [None]},
    {"o": {"a": None, "b": {"c": ""}}, "l": [{"d": None, "at": None}, None, {"d": Decimal("1.25"), "at": _AT}]},
    {"o": {"a": -(2**63), "b": {"c": "text"}}, "l": [{"d": Decimal("-" + "9" * 36 + ".99"), "at": _AT}]},
)


# promise 2
@pytest.mark.parametrize("shift", range(1, len(_VALUES)))
def test_nulls_within_nested_values_stay_apart_in_many_row_groups(tmp_path: Path, shift: int) -> None:
    """Rows that change, rows beside them in the same file, and new rows."""

    def rows(numbers: range, shift: int) -> list[dict[str, Any]]:
        return [{"_key": f"{number:03}"} | _VALUES[(number + shift) % len(_VALUES)] for number in numbers]

    before = pa.Table.from_pylist(rows(range(200), 0), _NESTED)
    write_deltalake(tmp_path, before, writer_properties=WriterProperties(max_row_group_size=7, write_batch_size=7))
    (file,) = opened(tmp_path).files
    assert pq.ParquetFile(tmp_path / file.path).num_row_groups > 20
    changed = pa.Table.from_pylist(rows(range(150, 250), shift), _NESTED)
    assert upsert(tmp_path, changed) == Merged(50, 50, 0)
    assert rows_in(tmp_path) == rows(range(150), 0) + rows(range(150, 250), shift)


def test_keys_in_no_file_are_inserted_and_no_file_is_read(tmp_path: Path) -> None:
    write_deltalake(tmp_path, _ROWS)
    (tmp_path / opened(tmp_path).files[0].path).rename(tmp_path / "hidden")
    assert upsert(tmp_path, pa.table({"_key": ["c"], "n": [3]}), files=[]) == Merged(1, 0, 0)


def test_a_merge_without_matching_rows_makes_no_commit(tmp_path: Path) -> None:
    write_deltalake(tmp_path, _ROWS)
    table = opened(tmp_path)
    assert table.merge(_ROWS, MergeRule(("_key",)).update(["n"], when="s.n > t.n"), table.files) == NOTHING
    assert DeltaTable(tmp_path).version() == 0


_OLD = {
    "a time": pa.array([datetime(1899, 12, 31)], pa.timestamp("us", "UTC")),
    "a date": pa.array([date(1582, 10, 14)]),
    "a time in an array of documents": pa.array([[{"at": None}, {"at": datetime(1, 1, 1, tzinfo=UTC)}]]),
}


# promise 2
@pytest.mark.parametrize("old", _OLD.values(), ids=_OLD)
def test_an_old_time_in_a_file_or_in_the_source_is_left_to_spark(tmp_path: Path, old: pa.Array) -> None:
    recent = pa.table({"_key": ["a"], "v": pa.nulls(1, old.type)})
    write_deltalake(tmp_path, recent)
    assert upsert(tmp_path, recent) == Merged(0, 1, 0)
    stored = opened(tmp_path)
    with pytest.raises(OldTime):
        upsert(tmp_path, stored.conformed(pa.table({"_key": ["a"], "v": old}), ["_key", "v"]))
    write_deltalake(tmp_path, pa.table({"_key": ["b"], "v": old}), mode="append")
    assert upsert(tmp_path, recent, files=files_with(opened(tmp_path), "a")) == Merged(0, 1, 0)
    with pytest.raises(OldTime):
        upsert(tmp_path, recent, files=files_with(opened(tmp_path), "b"))


Actions = dict[str, dict[str, Any]]


def _protocol(reader: int, writer: int, **features: list[str]) -> Callable[[Actions], None]:
    def change(actions: Actions) -> None:
        actions["protocol"] = {"minReaderVersion": reader, "minWriterVersion": writer, **features}

    return change


def _property(name: str, value: str) -> Callable[[Actions], None]:
    return lambda actions: actions["metaData"]["configuration"].update({name: value})


def _column(kind: Any, *, nullable: bool = True, **metadata: str) -> Callable[[Actions], None]:
    def change(actions: Actions) -> None:
        schema = json.loads(actions["metaData"]["schemaString"])
        schema["fields"].append({"name": "own", "type": kind, "nullable": nullable, "metadata": metadata})
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
    "a text of limited length": _column("string", __CHAR_VARCHAR_TYPE_STRING="varchar(3)"),
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


def test_properties_of_a_table_that_is_not_plain_are_not_set(tmp_path: Path) -> None:
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly", "invariants"]}
    table_with(tmp_path, lambda actions: actions["protocol"].update(protocol))
    table = opened(tmp_path)
    assert not table.is_plain
    assert not table.set_properties({"test.a": "1"})
    assert opened(tmp_path).version == 0


@pytest.mark.parametrize("change", _FOR_SPARK_TO_CHANGE.values(), ids=_FOR_SPARK_TO_CHANGE)
def test_a_table_that_only_spark_can_change_is_not_opened(tmp_path: Path, change: Callable[[Actions], None]) -> None:
    folder = table_with(tmp_path, change)
    with contextlib.suppress(ONLY_SPARK):
        assert MergeableTable.open(folder, key="_key") is None


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


# promise 2
def test_a_key_beyond_the_year_9999_is_merged(tmp_path: Path) -> None:
    days = pa.table({"day": pa.array([0, 4_000_000], pa.date32()), "n": [1, 2]})
    write_deltalake(tmp_path, days)
    assert [(file.smallest, file.largest) for file in opened(tmp_path, "day").files] == [(None, None)]
    assert upsert(tmp_path, days.slice(1), "day") == Merged(0, 1, 0)


_LINE = b'{"level":"INFO","logger":"shop.checkout","message":"cart %08d was paid","tags":["a","b"]}'


def documents(*, equal: bool, size: int = 256 << 10, rows: int = 800) -> pa.Table:
    """Return 200 MiB of documents that compress a hundredfold. Parquet stores equal ones once."""
    texts = [(_LINE % (0 if equal else number)) * (size // len(_LINE)) for number in range(rows)]
    return pa.table({"_key": [f"{number:04}" for number in range(rows)], "document": pa.array(texts, pa.binary())})


@pytest.mark.parametrize("equal", [False, True], ids=["different documents", "equal documents"])
def test_rows_are_bounded_by_their_bytes_before_compression(tmp_path: Path, equal: bool) -> None:
    rows = documents(equal=equal)
    write_deltalake(tmp_path, rows.slice(0, 0))
    write_deltalake(tmp_path, rows, mode="append", writer_properties=WriterProperties(compression="ZSTD"))
    (file,) = opened(tmp_path).files
    assert (file.size * 50 < rows.nbytes, rows.nbytes > 3 * SMALL_BYTES) == (True, True)
    before, kept = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(kept)
    try:
        assert opened(tmp_path).rows_with(pa.chunked_array([["0001"]]), ["_key"]).num_rows == 1
        with pytest.raises(TooLarge):
            upsert(tmp_path, rows.slice(0, 1))
        bronze = LocalFolder(tmp_path)
        files = appended_files(bronze, 0, 1, 10_000)
        assert files is not None
        assert appended_rows(bronze, files, rows.schema, 32 << 20) is None
        assert appended_rows(bronze, files, pa.schema([rows.schema.field("_key")]), 32 << 20) is not None
        assert kept.max_memory() < 3 * SMALL_BYTES
    finally:
        pa.set_memory_pool(before)


def test_rows_of_the_source_and_of_the_files_are_bounded_together(tmp_path: Path) -> None:
    rows = documents(equal=False, rows=160)
    write_deltalake(tmp_path, rows)
    assert upsert(tmp_path, rows.slice(0, 1)) == Merged(0, 1, 0)
    with pytest.raises(TooLarge):
        upsert(tmp_path, documents(equal=False, rows=160))


_LINES = pa.table({"_key": [f"{number:05}" for number in range(40_000)], "text": ["x" * 2_000] * 40_000})


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """A table with one file of 80 MB, not compressed."""
    write_deltalake(tmp_path, _LINES)
    return tmp_path


# promise 2
def test_rows_before_the_first_change_of_a_file_are_bounded(lines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """delta-rs holds them until it knows that the file changes."""
    monkeypatch.setattr(merge_memory, "HELD_BYTES", 20 << 20)
    changed = pa.table({"_key": ["05000", "39999"], "text": ["new", "new"]})
    with pytest.raises(TooLarge):
        upsert(lines, changed.slice(1), files=files_with(opened(lines), "39999"))
    assert upsert(lines, changed, files=files_with(opened(lines), "05000", "39999")) == Merged(0, 2, 0)


def test_a_file_between_the_bounds_of_changed_files_is_held_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = pa.table({"_key": ["00000", "39999"], "text": ["first", "last"]})
    write_deltalake(tmp_path, ends)
    write_deltalake(tmp_path, _LINES.slice(1, 39_998), mode="append")
    assert upsert(tmp_path, ends, files=files_with(opened(tmp_path), "00000")) == Merged(0, 2, 0)
    monkeypatch.setattr(merge_memory, "HELD_BYTES", 20 << 20)
    with pytest.raises(TooLarge):
        upsert(tmp_path, ends, files=files_with(opened(tmp_path), "00000"))


def test_rows_of_which_a_few_thousand_exceed_the_memory_are_left_to_spark(
    lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_memory, "_BATCH_BYTES", 10 << 20)
    with pytest.raises(TooLarge):
        upsert(lines, _LINES.slice(0, 1), files=files_with(opened(lines), "00000"))


def test_the_keys_of_a_file_are_found_with_the_place_of_the_first(tmp_path: Path) -> None:
    write_deltalake(tmp_path, _LINES.slice(0, 0))
    for first in (0, 20_000):
        rows = _LINES.slice(first, 20_000)
        write_deltalake(tmp_path, rows, mode="append", writer_properties=WriterProperties(max_row_group_size=3_000))
    keys = pa.chunked_array([["39999", "00007", "19999"], ["05000", "x", "00007"]])
    found = {file.first_match: sorted(some.to_pylist()) for file, some in opened(tmp_path).find_keys(keys)}
    assert found == {7: ["00007", "05000", "19999"], 19_999: ["39999"]}
    assert opened(tmp_path).find_keys(pa.chunked_array([["a", "b"]])) == []
    assert opened(tmp_path).find_keys(pa.chunked_array([], pa.string())) == []


def test_files_are_merged_in_groups_of_neighbours() -> None:
    def file(smallest: str | None, largest: str | None, size: int) -> StoredFile:
        return StoredFile(f"{smallest}-{largest}", size, smallest, largest)

    def groups(*files: StoredFile) -> list[list[str]]:
        return [[one.path for one in group] for group in groups_of(files, lambda file: file.size, 10)]

    assert groups(file("m", "p", 5), file("a", "c", 5), file("d", "f", 5)) == [["a-c", "d-f"], ["m-p"]]
    assert groups(file("a", "c", 50), file("d", "f", 5)) == [["a-c"], ["d-f"]]
    assert groups(file("a", "d", 50), file("d", "f", 50), file("g", "h", 1)) == [["a-d", "d-f"], ["g-h"]]
    assert groups(file("a", "c", 50), file(None, None, 50)) == [["None-None", "a-c"]]
    assert groups() == []


def test_files_without_rows_to_merge_are_compacted_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of keys that the table lacks are appended. A large file that compresses well does not prevent it."""
    write_deltalake(tmp_path, _LINES)
    monkeypatch.setattr(merge_memory, "HELD_BYTES", 20 << 20)
    for number in range(32):
        table = opened(tmp_path)
        merged = table.load(table.write([pa.table({"_key": [f"new{number}"], "text": [""]})]))
        assert merged == Merged(1, 0, 0)
    assert len(opened(tmp_path).files) == 33
    opened(tmp_path).tidy()
    assert len(opened(tmp_path).files) < 5
    assert len(rows_in_keys(tmp_path)) == 40_032


def rows_in_keys(path: Path) -> set[str]:
    return set(DeltaTable(path).to_pyarrow_table(columns=["_key"])["_key"].to_pylist())


def test_written_files_are_bounded_by_their_bytes_before_compression(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mergeable_table, "_FILE_BYTES", 20 << 20)
    write_deltalake(tmp_path, _LINES.slice(0, 0))
    parts = [_LINES.slice(first, 4_000) for first in range(0, 40_000, 4_000)]
    assert [file.rows for file in opened(tmp_path).write(parts)] == [12_000, 12_000, 12_000, 4_000]
