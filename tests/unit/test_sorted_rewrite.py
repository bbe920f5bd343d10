"""Closed days that are rewritten sorted by collection: the same rows in fewer files, whatever happens meanwhile."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from strandline.bronze.envelope import SCHEMA
from strandline.errors import ConfigurationError, ContractError, RetriableError
from strandline.io.delta_log.local_folder import LocalFolder
from strandline.io.delta_log.log_commit import put_commit
from strandline.io.delta_log.parquet_file import write_data_file
from strandline.io.delta_log.rewrite_commit import commit_rewrite
from strandline.io.delta_log.sorted_rewrite import rewrite_closed_days
from strandline.io.delta_log.sorted_rows import GatheredRows, Sizes
from strandline.io.tables.delta_schema import delta_schema
from strandline.model.table_schemas import BRONZE_DDL, FEW_VALUES, SKIPPED_BY

TODAY = date(2024, 3, 10)
YESTERDAY = datetime(2024, 3, 9, 12, tzinfo=UTC)
SMALL = Sizes(run=40_000, row_group=20_000, shared=3_000, file=25_000)
"""Some runs, row groups and files for a few hundred rows."""


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
    at: datetime = YESTERDAY,
    *,
    schema: pa.Schema = SCHEMA,
    name: str | None = None,
) -> str:
    """Commit *rows* as one data file that was written at the time *at*. Return its path."""
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
        "modificationTime": int(at.timestamp() * 1000),
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


def groups(table: Path) -> Iterator[list[tuple[str, str, str]]]:
    """Keys of the rows of each row group, in the order of files by their keys."""
    files = [pq.ParquetFile(table / file["path"]) for file in active(table)]
    found = [
        [
            [
                (row["db"] or "", row["collection"] or "", row["position"])
                for row in file.read_row_group(number).to_pylist()
            ]
            for number in range(file.num_row_groups)
        ]
        for file in files
    ]
    return (group for file in sorted(found) for group in file)


def committed(table: Path, version: int) -> list[dict[str, Any]]:
    text = (table / "_delta_log" / f"{version:020}.json").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def names(table: Path) -> set[str]:
    return {path.name for path in table.iterdir()}


def remove(path: str) -> dict[str, Any]:
    return {"remove": {"path": path, "deletionTimestamp": 1, "dataChange": False, "partitionValues": {}, "size": 1}}


@pytest.mark.parametrize("seed", range(5))
def test_the_rows_are_the_same_and_each_collection_is_in_one_place(table: Path, seed: int) -> None:
    append_in_files(table, random_rows(seed, 600, collections=60), files=7)
    before, version = contents(table), DeltaTable(str(table)).version()
    done = rewrite_closed_days(LocalFolder(table), today=TODAY, sizes=SMALL)
    assert done == (7, len(active(table)))
    assert len(active(table)) > 2, "the sizes cut several files"
    assert contents(table) == before
    assert contents(table, version) == before, "the earlier version stays readable"
    collections = [key[:2] for group in groups(table) for key in group]
    assert collections == sorted(collections)
    assert all(group == sorted(group) for group in groups(table))


def test_statistics_lead_a_reader_of_one_collection_to_few_files_and_row_groups(table: Path) -> None:
    append_in_files(
        table, [row(number, f"c{number % 50:03}", envelope=bytes(100)) for number in range(2_000)], files=10
    )
    rewrite_closed_days(
        LocalFolder(table), today=TODAY, sizes=Sizes(run=50_000, row_group=20_000, shared=1, file=4_000)
    )
    files, kinds = active(table), [{key[1] for key in group} for group in groups(table)]
    assert len(files) >= 10
    for name in (f"c{number:03}" for number in range(50)):
        assert sum(file["min.collection"] <= name <= file["max.collection"] for file in files) <= 2
        assert sum(name in kind for kind in kinds) == 1
    assert {len(kind) for kind in kinds} == {1}


def test_small_collections_share_a_row_group_and_large_ones_do_not(table: Path) -> None:
    rows = [row(number, "large", envelope=bytes(200)) for number in range(100)]
    small = [row(number, f"{side}{number}") for number in range(10) for side in ("a", "z")]
    append_in_files(table, rows + small, files=3)
    rewrite_closed_days(LocalFolder(table), today=TODAY, sizes=Sizes(run=10_000, row_group=15_000, shared=5_000))
    kinds = [{key[1] for key in group} for group in groups(table)]
    assert kinds[0] == {f"a{number}" for number in range(10)}
    assert kinds[-1] == {f"z{number}" for number in range(10)}
    assert all(kind == {"large"} for kind in kinds[1:-1])
    assert len(kinds) > 3


def test_control_rows_come_first_and_keep_their_order(table: Path) -> None:
    control = [
        row(1, None, position=None, op="heartbeat"),
        row(2, None, position=None, db="shop", op="c"),
        row(3, "", position=None, op="gap"),
        row(4, "zeta", db="", position=None, op="signal"),
    ]
    append(table, [row(9, "alpha"), *control, row(8, "alpha")])
    assert rewrite_closed_days(LocalFolder(table), today=TODAY) == (1, 1)
    (file,) = active(table)
    assert pq.read_table(table / file["path"])["batch"].to_pylist() == [1, 2, 3, 4, 8, 9]


def test_a_commit_moves_files_and_changes_no_data(table: Path) -> None:
    paths = [append(table, [row(1, "a"), row(2, "b")]), append(table, [row(3, "a")], name="part a+b %20ü.parquet")]
    before = contents(table)
    assert rewrite_closed_days(LocalFolder(table), today=TODAY) == (2, 1)
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


def test_a_day_is_rewritten_once(table: Path) -> None:
    append_in_files(table, random_rows(1, 50, collections=5), files=3)
    assert rewrite_closed_days(LocalFolder(table), today=TODAY) == (3, 1)
    assert rewrite_closed_days(LocalFolder(table), today=TODAY) == (0, 0)
    late = append(table, [row(1, "a"), row(2, "b")])
    assert rewrite_closed_days(LocalFolder(table), today=TODAY) == (1, 1)
    assert {action["remove"]["path"] for action in committed(table, 6) if "remove" in action} == {late}


def test_one_file_of_one_collection_is_sorted_already(table: Path) -> None:
    append(table, [row(1, "a"), row(2, "a")])
    assert rewrite_closed_days(LocalFolder(table), today=TODAY) == (0, 0)


def test_a_table_without_files_has_nothing_to_do(table: Path) -> None:
    assert rewrite_closed_days(LocalFolder(table), today=TODAY) == (0, 0)


def test_days_end_at_midnight_utc_and_have_one_commit_each(table: Path) -> None:
    times = [
        datetime(2024, 3, 8, 0, 0, tzinfo=UTC),
        datetime(2024, 3, 8, 23, 59, 59, 999_000, tzinfo=UTC),
        datetime(2024, 3, 9, 0, 0, tzinfo=UTC),
        datetime(2024, 3, 9, 23, 59, 59, 999_000, tzinfo=UTC),
        datetime(2024, 3, 10, 0, 0, tzinfo=UTC),
        datetime(2024, 3, 10, 1, 0, tzinfo=UTC),
    ]
    paths = [append(table, [row(number, "b"), row(number, "a")], at) for number, at in enumerate(times)]
    assert rewrite_closed_days(LocalFolder(table), today=TODAY) == (4, 2)
    removed = [
        {action["remove"]["path"] for action in committed(table, version) if "remove" in action} for version in (7, 8)
    ]
    assert removed == [set(paths[:2]), set(paths[2:4])]
    assert {paths[4], paths[5]} < {file["path"] for file in active(table)}


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
    assert rewrite_closed_days(LocalFolder(table), today=TODAY) == (3, 1)
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
    assert rewrite_closed_days(LocalFolder(table), today=TODAY) == (1, 1)
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
    assert rewrite_closed_days(LocalFolder(table), today=TODAY) == (3, 1)
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
    assert rewrite_closed_days(LocalFolder(table), today=TODAY) is None
    assert names(table) == before
    assert DeltaTable(str(table)).version() == 3


def test_a_lost_day_does_not_hide_the_other_one(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = append(table, [row(1, "a"), row(2, "b")], datetime(2024, 3, 8, tzinfo=UTC))
    append(table, [row(3, "a"), row(4, "b")])
    rivals = iter([True])
    interrupt(monkeypatch, lambda: next(rivals, False) and put_commit(LocalFolder(table), 3, [remove(path)]))
    assert rewrite_closed_days(LocalFolder(table), today=TODAY) == (1, 1)


def test_commits_that_log_clean_up_removed_end_the_rewrite(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(table, [row(1, "a"), row(2, "b")])
    before = names(table)

    def clean() -> None:
        append(table, [row(3, "c")])
        append(table, [row(4, "c")])
        DeltaTable(str(table)).create_checkpoint()
        (table / "_delta_log" / f"{2:020}.json").unlink()

    interrupt(monkeypatch, clean)
    assert rewrite_closed_days(LocalFolder(table), today=TODAY) is None
    assert {name for name in names(table) - before if name.startswith("sorted-")} == set()
    assert not (table / "_delta_log" / f"{2:020}.json").exists(), "a hole in the log is not filled"


_KILLED = """
import os, sys
from datetime import date
from pathlib import Path
import strandline.io.delta_log.sorted_rewrite as module
from strandline.io.delta_log.local_folder import LocalFolder
setattr(module, sys.argv[2], lambda *_, **__: os._exit(9))
module.rewrite_closed_days(LocalFolder(Path(sys.argv[1])), today=date(2024, 3, 10))
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
    assert rewrite_closed_days(LocalFolder(table), today=TODAY) == (3, 1)
    assert contents(table) == before


@pytest.mark.parametrize("fails_at", [1, 2, 3, 4])
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
            rewrite_closed_days(LocalFolder(table), today=TODAY, sizes=SMALL)
    assert names(table) == files
    assert contents(table) == before
    assert rewrite_closed_days(LocalFolder(table), today=TODAY, sizes=SMALL) == (3, len(active(table)))


def test_a_disk_that_is_full_while_rows_are_spilled_leaves_nothing(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(table, random_rows(5, 50, collections=5))
    files = names(table)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(GatheredRows, "_write", full)
    with pytest.raises(OSError, match="No space left"):
        rewrite_closed_days(LocalFolder(table), today=TODAY)
    assert names(table) == files


def test_files_of_a_commit_whose_folder_could_not_be_synced_stay(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append_in_files(table, random_rows(6, 50, collections=5), files=3)
    before = contents(table)

    def full(path: Path) -> None:
        raise OSError(errno.EIO, f"{path} is not synced")

    monkeypatch.setattr("strandline.io.delta_log.disk.sync", full)
    with pytest.raises(OSError, match="is not synced"):
        rewrite_closed_days(LocalFolder(table), today=TODAY)
    assert DeltaTable(str(table)).version() == 4, "readers see the commit"
    assert contents(table) == before


def test_a_rewrite_that_loses_rows_is_not_committed(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(table, [row(1, "a"), row(2, "b")])
    files = names(table)
    monkeypatch.setattr(GatheredRows, "row_groups", lambda _: iter([]))
    with pytest.raises(ContractError, match="read 2 rows and wrote 0"):
        rewrite_closed_days(LocalFolder(table), today=TODAY)
    assert names(table) == files


def test_a_missing_table_and_a_table_of_newer_features_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RetriableError, match="cannot be opened"):
        rewrite_closed_days(LocalFolder(tmp_path / "none"), today=TODAY)
    DeltaTable.create(
        str(tmp_path / "newer"), delta_schema(BRONZE_DDL), configuration={"delta.enableDeletionVectors": "true"}
    )
    DeltaTable.create(str(tmp_path / "days"), delta_schema(BRONZE_DDL), partition_by=["batch"])
    for name in ("newer", "days"):
        with pytest.raises(ConfigurationError, match="no plain Delta table"):
            rewrite_closed_days(LocalFolder(tmp_path / name), today=TODAY)


def test_row_groups_are_bounded_whatever_the_order_and_size_of_rows(tmp_path: Path) -> None:
    sizes = Sizes(run=300_000, row_group=100_000, shared=20_000)
    rows = [row(number, f"c{number % 7}", envelope=bytes(number % 9_000)) for number in range(3_000)]
    with GatheredRows(str(tmp_path), SCHEMA, sizes) as gathered:
        for begin in range(0, len(rows), 100):
            gathered.add(pa.RecordBatch.from_pylist(rows[begin : begin + 100], schema=SCHEMA))
        found = list(gathered.row_groups())
    assert list(tmp_path.iterdir()) == []
    assert sum(group.num_rows for group in found) == 3_000
    assert all(len(group["collection"].unique()) == 1 for group in found)
    assert max(group.nbytes for group in found) < sizes.row_group + sizes.run
    assert all(first["collection"][-1].as_py() <= second["collection"][0].as_py() for first, second in pairwise(found))
