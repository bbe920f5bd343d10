"""Files that are rewritten sorted by collection: the same rows in fewer files, whatever happens meanwhile."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from strandline.bronze.envelope import SCHEMA
from strandline.errors import ConfigurationError, ContractError, RetriableError
from strandline.io.delta_log import sorted_rewrite
from strandline.io.delta_log.local_folder import LocalFolder
from strandline.io.delta_log.log_commit import put_commit
from strandline.io.delta_log.parquet_file import write_data_file
from strandline.io.delta_log.rewrite_commit import commit_rewrite
from strandline.io.delta_log.sorted_rewrite import merge_small_files, sort_files
from strandline.io.tables.delta_schema import delta_schema
from strandline.model.table_schemas import BRONZE_DDL, FEW_VALUES, SKIPPED_BY


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some runs, row groups and files for a few hundred rows."""
    for name, size in {"_RUN_BYTES": 40_000, "_GROUP_BYTES": 3_000, "_FILE_BYTES": 25_000}.items():
        monkeypatch.setattr(sorted_rewrite, name, size)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    DeltaTable.create(str(tmp_path / "bronze"), delta_schema(BRONZE_DDL), configuration={"delta.appendOnly": "true"})
    return tmp_path / "bronze"


def row(number: int, collection: str | None, **values: Any) -> dict[str, Any]:
    return {
        "batch": number,
        "position": f"{number:08x}",
        "op": "c",
        "db": None if collection is None else "shop",
        "collection": collection,
        "envelope": bytes([number % 256]) * 20,
        **values,
    }


def random_rows(seed: int, count: int, collections: int) -> list[dict[str, Any]]:
    chosen = random.Random(seed)
    return [
        row(
            number,
            chosen.choice([None, *(f"c{int(chosen.triangular(0, collections, 0)):03}" for _ in range(20))]),
            envelope=chosen.choice([None, b"", chosen.randbytes(chosen.randrange(400))]),
            source=chosen.choice([None, {"name": "s", "ts_ms": number}, {"ord": -(2**31), "ts_ms": 2**63 - 1}]),
            update_description=chosen.choice(
                [
                    None,
                    {"removed_fields": [], "truncated_arrays": [{"field": "✓", "new_size": 1}, None]},
                    {"updated_fields": "{}", "removed_fields": ["a", None, ""]},
                ]
            ),
        )
        for number in range(count)
    ]


def append(
    table: Path,
    rows: Sequence[dict[str, Any]],
    *,
    schema: pa.Schema = SCHEMA,
    name: str | None = None,
) -> str:
    """Commit *rows* as one data file. Return its path."""
    file = write_data_file(
        LocalFolder(table),
        schema,
        [pa.RecordBatch.from_pylist(list(rows), schema=schema)],
        statistics_of=[column for column in SKIPPED_BY if column in schema.names],
        dictionaries=FEW_VALUES,
    )
    path = name or file.name
    (table / file.name).rename(table / path)
    add = {
        "path": quote(path),
        "partitionValues": {},
        "size": file.size,
        "modificationTime": file.modified_ms,
        "dataChange": True,
        "stats": file.statistics,
    }
    assert put_commit(LocalFolder(table), DeltaTable(str(table)).version() + 1, [{"add": add}])
    return path


def append_in_files(table: Path, rows: Sequence[dict[str, Any]], files: int) -> None:
    for number in range(files):
        append(table, rows[number::files])


def contents(table: Path, version: int | None = None) -> Counter[str]:
    rows = pa.table(DeltaTable(str(table), version=version).to_pyarrow_table()).to_pylist()
    return Counter(repr(sorted(row.items())) for row in rows)


def active(table: Path) -> list[dict[str, Any]]:
    return list(pa.table(DeltaTable(str(table)).get_add_actions(flatten=True)).to_pylist())


def committed(table: Path, version: int) -> list[dict[str, Any]]:
    text = (table / "_delta_log" / f"{version:020}.json").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def names(table: Path) -> set[str]:
    return {path.name for path in table.iterdir()}


def remove(path: str) -> dict[str, Any]:
    return {"remove": {"path": path, "deletionTimestamp": 1, "dataChange": False, "partitionValues": {}, "size": 1}}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.usefixtures("small")
def test_rows_are_the_same_and_each_row_group_is_sorted(table: Path, seed: int) -> None:
    append_in_files(table, random_rows(seed, 600, collections=60), files=7)
    before, version = contents(table), DeltaTable(str(table)).version()
    assert sort_files(LocalFolder(table)) == (7, len(active(table)))
    assert len(active(table)) > 2, "the size of a run cuts several files"
    assert contents(table) == before
    assert contents(table, version) == before, "the earlier version stays readable"
    groups = [group for file in active(table) for group in groups_of(table / file["path"])]
    assert len(groups) > 20
    assert all(group == sorted(group) for group in groups)


def groups_of(path: Path) -> list[list[tuple[str, str, str]]]:
    """Keys of the rows of each row group."""
    with pq.ParquetFile(path) as file:
        groups = [file.read_row_group(number).to_pylist() for number in range(file.num_row_groups)]
    return [[(row["db"] or "", row["collection"] or "", row["position"]) for row in group] for group in groups]


def test_a_large_collection_has_a_row_group_and_small_ones_share_one(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorted_rewrite, "_GROUP_BYTES", 8_000)
    rows = [row(number, "large", envelope=bytes(200)) for number in range(100)]
    small = [row(number, f"{side}{number}") for number in range(10) for side in ("a", "z")]
    append_in_files(table, rows + small, files=3)
    sort_files(LocalFolder(table))
    (file,) = active(table)
    assert [{key[1] for key in group} for group in groups_of(table / file["path"])] == [
        {f"a{number}" for number in range(10)},
        {"large"},
        {f"z{number}" for number in range(10)},
    ]


@pytest.mark.usefixtures("small")
def test_a_full_file_is_rewritten_once_and_a_smaller_one_with_later_files(table: Path) -> None:
    append_in_files(table, random_rows(1, 500, collections=5), files=7)
    sort_files(LocalFolder(table))
    files = active(table)
    partial = {file["path"] for file in files if file["size_bytes"] < sorted_rewrite._FILE_BYTES}
    assert len(partial) <= 1 < len(files)
    assert sort_files(LocalFolder(table)) == (0, 0)
    late = append(table, [row(1, "a"), row(2, "b")])
    assert sort_files(LocalFolder(table)) == (len(partial) + 1, 1)
    assert {action["remove"]["path"] for action in committed(table, 10) if "remove" in action} == {late, *partial}


def test_files_that_capture_merged_are_sorted_with_others(table: Path) -> None:
    append_in_files(table, random_rows(1, 50, collections=5), files=4)
    before = contents(table)
    assert merge_small_files(LocalFolder(table), at_least=5) == (0, 0)
    assert merge_small_files(LocalFolder(table), at_least=4) == (4, 1)
    assert merge_small_files(LocalFolder(table), at_least=1) == (0, 0)
    append(table, [row(900, "new")])
    assert sort_files(LocalFolder(table)) == (2, 1)
    assert contents(table).total() == before.total() + 1


def test_each_part_of_a_large_backlog_has_a_commit(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append_in_files(table, random_rows(1, 40, collections=5), files=4)
    monkeypatch.setattr(sorted_rewrite, "_COMMIT_BYTES", 2 * min(file["size_bytes"] for file in active(table)))
    path = active(table)[0]["path"]
    assert sort_files(LocalFolder(table)) == (4, 2)
    assert DeltaTable(str(table)).version() == 6
    assert path not in {file["path"] for file in active(table)}


def test_a_part_that_is_lost_does_not_hide_another(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = append(table, [row(1, "a"), row(2, "b")])
    append(table, [row(3, "a"), row(4, "b")])
    monkeypatch.setattr(sorted_rewrite, "_COMMIT_BYTES", 1)
    rivals = iter([True])
    interrupt(monkeypatch, lambda: next(rivals, False) and put_commit(LocalFolder(table), 3, [remove(path)]))
    assert sort_files(LocalFolder(table)) == (1, 1)


def test_control_rows_come_first_and_keep_their_order(table: Path) -> None:
    control = [
        row(1, None, position=None, op="heartbeat"),
        row(2, None, position=None, db="shop", op="c"),
        row(3, "", position=None, op="gap"),
        row(4, "zeta", db="", position=None, op="signal"),
    ]
    append(table, [row(9, "alpha"), *control, row(8, "alpha")])
    assert sort_files(LocalFolder(table)) == (1, 1)
    (file,) = active(table)
    assert pq.read_table(table / file["path"])["batch"].to_pylist() == [1, 2, 3, 4, 8, 9]


def test_a_commit_moves_files_and_changes_no_data(table: Path) -> None:
    paths = [append(table, [row(1, "a"), row(2, "b")]), append(table, [row(3, "a")], name="part a+b %20ü.parquet")]
    before = contents(table)
    assert sort_files(LocalFolder(table)) == (2, 1)
    assert contents(table) == before
    info, *actions = committed(table, 3)
    assert info["commitInfo"]["operation"] == "OPTIMIZE"
    assert info["commitInfo"]["isBlindAppend"] is False
    assert info["commitInfo"]["operationMetrics"]["numRemovedFiles"] == "2"
    assert info["commitInfo"]["operationMetrics"]["numAddedFiles"] == "1"
    assert {action["remove"]["path"] for action in actions[:2]} == {quote(path) for path in paths}
    assert not any(change["dataChange"] for action in actions for change in action.values())
    added = actions[2]["add"]
    assert added["size"] == (table / added["path"]).stat().st_size
    assert json.loads(added["stats"])["numRecords"] == 3
    assert json.loads(added["stats"])["minValues"]["collection"] == "a"


def test_a_table_without_files_has_nothing_to_do(table: Path) -> None:
    assert sort_files(LocalFolder(table)) == (0, 0)


def test_an_older_file_lacks_columns_and_has_others_elsewhere(table: Path) -> None:
    older = pa.schema([SCHEMA.field(name) for name in ("envelope", "collection", "position", "db", "batch")])
    source = pa.struct([("ts_ms", pa.int64()), ("name", pa.string())])
    narrow = pa.schema([*older, ("source", source), ("cluster_time", pa.timestamp("us", "UTC"))])
    append(table, [{"collection": "a", "position": "1", "db": "shop", "batch": 1, "envelope": b"x"}], schema=older)
    append(
        table,
        [{"collection": "a", "db": "shop", "source": {"ts_ms": 5, "name": "s"}, "cluster_time": 7}],
        schema=narrow,
    )
    append(table, [row(3, "b", last_event="new")])
    assert sort_files(LocalFolder(table)) == (3, 1)
    (file,) = active(table)
    found = pq.read_table(table / file["path"])
    assert found.schema.names == SCHEMA.names
    assert found["envelope"].to_pylist() == [None, b"x", bytes([3]) * 20]
    assert found["last_event"].to_pylist() == [None, None, "new"]
    assert found["source"][0].as_py()["ts_ms"] == 5
    assert found["source"][0].as_py()["ord"] is None
    assert found["source"][1].as_py() is None


def test_timestamps_that_spark_wrote_as_int96_keep_their_time(table: Path) -> None:
    far = [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)]
    path = append(table, [row(1, "a", cluster_time=far[1]), row(2, "b", cluster_time=far[0])])
    written = pq.read_table(table / path)
    pq.write_table(written, table / path, use_deprecated_int96_timestamps=True, store_schema=False)
    assert sort_files(LocalFolder(table)) == (1, 1)
    (file,) = active(table)
    assert pq.read_table(table / file["path"]).select(["cluster_time"]).equals(written.select(["cluster_time"]))


def interrupt(monkeypatch: pytest.MonkeyPatch, then: Any) -> None:
    """Call *then* after the files are written and before they are committed."""

    def commit(*args: Any, **options: Any) -> bool:
        then()
        return commit_rewrite(*args, **options)

    monkeypatch.setattr("strandline.io.delta_log.sorted_rewrite.commit_rewrite", commit)


def test_appends_in_between_are_no_conflict(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append_in_files(table, random_rows(2, 50, collections=5), files=3)
    before = contents(table)
    interrupt(monkeypatch, lambda: [append(table, [row(900 + number, "new")]) for number in range(3)])
    assert sort_files(LocalFolder(table)) == (3, 1)
    assert len(contents(table) - before) == 3
    assert not before - contents(table)
    assert DeltaTable(str(table)).version() == 7


@pytest.mark.parametrize("kind", ["remove", "metaData", "protocol"])
def test_a_rival_commit_ends_the_rewrite_and_its_files(table: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    path = append(table, [row(1, "a"), row(2, "b")], name="part a+b.parquet")
    append(table, [row(3, "a")])
    created = next(action for action in committed(table, 0) if "metaData" in action)
    rival = {
        "remove": remove(quote(path)),
        "metaData": created,
        "protocol": {"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}},
    }[kind]
    before = names(table)
    interrupt(monkeypatch, lambda: put_commit(LocalFolder(table), 3, [rival]))
    assert sort_files(LocalFolder(table)) is None
    assert names(table) == before
    assert DeltaTable(str(table)).version() == 3


def test_commits_that_log_clean_up_removed_end_the_rewrite(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(table, [row(1, "a"), row(2, "b")])
    before = names(table)

    def clean() -> None:
        append(table, [row(3, "c")])
        append(table, [row(4, "c")])
        DeltaTable(str(table)).create_checkpoint()
        (table / "_delta_log" / f"{2:020}.json").unlink()

    interrupt(monkeypatch, clean)
    assert sort_files(LocalFolder(table)) is None
    assert {name for name in names(table) - before if name.startswith("sorted-")} == set()
    assert not (table / "_delta_log" / f"{2:020}.json").exists(), "a hole in the log is not filled"


_KILLED = """
import os, sys
from pathlib import Path
import strandline.io.delta_log.sorted_rewrite as module
from strandline.io.delta_log.local_folder import LocalFolder
setattr(module, sys.argv[2], lambda *_, **__: os._exit(9))
module.sort_files(LocalFolder(Path(sys.argv[1])))
"""


@pytest.mark.parametrize("at", ["commit_rewrite", "write_data_file"])
def test_after_a_kill_the_table_is_unchanged_and_the_next_run_succeeds(table: Path, at: str) -> None:
    append_in_files(table, random_rows(3, 50, collections=5), files=3)
    before, files = contents(table), names(table)
    killed = subprocess.run([sys.executable, "-c", _KILLED, str(table), at], check=False)
    assert killed.returncode == 9
    assert contents(table) == before
    assert all(name.startswith("sorted-") for name in names(table) - files), "VACUUM removes these"
    assert len(names(table) - files) == (at == "commit_rewrite")
    assert sort_files(LocalFolder(table)) == (3, 1)
    assert contents(table) == before


@pytest.mark.parametrize("fails_at", [1, 2, 3, 4])
@pytest.mark.usefixtures("small")
def test_a_full_disk_leaves_nothing(table: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int) -> None:
    append_in_files(table, random_rows(4, 400, collections=20), files=3)
    before, files = contents(table), names(table)
    fsync, calls = os.fsync, iter(range(1, 100))

    def full(descriptor: int) -> None:
        if next(calls) == fails_at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space left"):
            sort_files(LocalFolder(table))
    assert names(table) == files
    assert contents(table) == before
    assert sort_files(LocalFolder(table)) == (3, len(active(table)))


def test_files_of_a_commit_whose_folder_could_not_be_synced_stay(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append_in_files(table, random_rows(6, 50, collections=5), files=3)
    before = contents(table)

    def full(path: Path) -> None:
        raise OSError(errno.EIO, f"{path} is not synced")

    monkeypatch.setattr("strandline.io.delta_log.disk.sync", full)
    with pytest.raises(OSError, match="is not synced"):
        sort_files(LocalFolder(table))
    assert DeltaTable(str(table)).version() == 4, "readers see the commit"
    assert contents(table) == before


def test_a_rewrite_that_loses_rows_is_not_committed(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(table, [row(1, "a"), row(2, "b")])
    files = names(table)
    monkeypatch.setattr(sorted_rewrite, "_row_groups", lambda _: iter([]))
    with pytest.raises(ContractError, match="read 2 rows and wrote 0"):
        sort_files(LocalFolder(table))
    assert names(table) == files


def test_a_missing_table_and_a_table_of_newer_features_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RetriableError, match="cannot be opened"):
        sort_files(LocalFolder(tmp_path / "none"))
    DeltaTable.create(
        str(tmp_path / "newer"), delta_schema(BRONZE_DDL), configuration={"delta.enableDeletionVectors": "true"}
    )
    DeltaTable.create(str(tmp_path / "days"), delta_schema(BRONZE_DDL), partition_by=["batch"])
    for name in ("newer", "days"):
        with pytest.raises(ConfigurationError, match="no plain Delta table"):
            sort_files(LocalFolder(tmp_path / name))
