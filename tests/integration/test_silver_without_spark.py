"""First loads and small batches of silver start no Spark. What needs Spark starts it."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import bson
import pytest
from deltalake import DeltaTable
from deltalake.table import TableAlterer
from lake_place import PLACE
from lakehouse import pipeline, settings_for
from pymongo.database import Database
from pyspark.sql import SparkSession
from spark_refused import WITHOUT_SPARK, SparkIsNeeded, capture_without_spark, lake_without_spark, refuse_spark
from without_java import source_of, strandline

from strandline.io.delta_log import mergeable_table
from strandline.io.delta_log.local_folder import LocalFolder
from strandline.io.delta_log.mergeable_table import MergeableTable
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.lake_context import LazyContext, open_silver_without_spark
from strandline.jobs.operations.engines import engines_of_rows
from strandline.jobs.silver import bronze_rows, direct_batch, direct_run
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.merge_rule import Merged
from strandline.model.tables import TableName

Db = Database[dict[str, Any]]
pytestmark = WITHOUT_SPARK
_VALUES = (1, 2**40, 1.5, "text", None, [1, {"b": "c"}], {"d": {"e": 1}}, bson.Decimal128("0.50"), b"bytes", [])


@pytest.fixture
def ctx(mongo_uri: str, database: Db, tmp_path: Path) -> LazyContext:
    settings = settings_for(mongo_uri, database.name, tmp_path / "lake")
    return lake_without_spark(settings)


def table(ctx: LazyContext, name: str) -> DeltaTable:
    return ctx.tables.folder(TableName("silver", name)).table()


def live(ctx: LazyContext, name: str) -> dict[str, bytes]:
    """Document of each live row, by key."""
    rows = table(ctx, name).to_pyarrow_table(columns=["_key", "_deleted", "_document"]).to_pylist()
    return {row["_key"]: row["_document"] for row in rows if not row["_deleted"]}


def assert_equal(ctx: LazyContext, database: Db, *names: str) -> None:
    for name in names:
        documents = {bson.encode(document) for document in database[name].find()}
        found = live(ctx, name)
        assert (len(found), set(found.values())) == (len(documents), documents), name


def writers(ctx: LazyContext, name: str) -> list[str]:
    return [entry["operation"] for entry in reversed(table(ctx, name).history())]


# promise 2
def test_snapshots_changes_and_later_batches_need_no_spark(ctx: LazyContext, database: Db) -> None:
    chance = random.Random(7)
    for name in "ab":
        database[name].insert_many(
            [{"_id": n, "n": n, "v": chance.choice(_VALUES), "w": chance.choice(_VALUES)} for n in range(300)]
        )
    capture_without_spark(ctx)
    for n in chance.sample(range(320), 60):
        database.a.replace_one({"_id": n}, {"n": -n, "v": chance.choice(_VALUES)}, upsert=True)
    database.a.delete_many({"_id": {"$in": chance.sample(range(320), 30)}})
    database.gone.insert_one({"_id": 1})
    capture_without_spark(ctx)
    run_silver(ctx)
    assert_equal(ctx, database, "a", "b", "gone")
    assert writers(ctx, "a") == ["CREATE TABLE", "ADD COLUMN", "SET TBLPROPERTIES", "MERGE", "SET TBLPROPERTIES"]
    assert run_silver(ctx) == []
    database.a.update_many({"n": {"$gt": 5}}, {"$inc": {"n": 1000}})
    database.c.insert_many([{"_id": str(n), "new": n} for n in range(5)])
    capture_without_spark(ctx)
    run_silver(ctx)
    assert_equal(ctx, database, "a", "b", "c")


def test_a_run_opens_each_table_once(ctx: LazyContext, database: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    """delta-rs reads the log for each opening: most of the time that a batch of few changes takes."""
    opened: Counter[str] = Counter()
    open_table = LocalFolder.table

    def counted(folder: LocalFolder, version: int | None = None) -> DeltaTable:
        opened[folder.path.parent.name] += 1
        return open_table(folder, version)

    for name in "ab":
        database[name].insert_many([{"_id": number, "n": 0} for number in range(10)])
    capture_without_spark(ctx)
    run_silver(ctx)
    for name in "ab":
        database[name].update_many({}, {"$set": {"n": 1}})
    capture_without_spark(ctx)
    monkeypatch.setattr(LocalFolder, "table", counted)
    run_silver(ctx)
    assert (opened["silver"], opened["bronze"]) == (2, 0)
    assert_equal(ctx, database, "a", "b")


# promise 2
def test_silver_beside_a_running_snapshot_appends_its_chunks(mongo_uri: str, database: Db, tmp_path: Path) -> None:
    """Documents change between the chunks. At the end there is nothing to sweep."""
    sizes = {"snapshot_chunk_size": 100, "snapshot_max_threads": 1}
    settings = settings_for(mongo_uri, database.name, tmp_path / "lake", **sizes)
    lake = open_silver_without_spark(settings)
    assert lake is not None
    ctx, chance = LazyContext(settings, lake.tables, refuse_spark), random.Random(8)
    database.a.insert_many([{"_id": number, "n": number} for number in range(1_000)])

    def merge(rows: str, _: int) -> None:
        if rows == "documents":
            database.a.update_many({"_id": {"$in": chance.sample(range(1_000), 20)}}, {"$inc": {"n": 5_000}})
            database.a.delete_one({"_id": chance.randrange(1_000)})
            run_silver(ctx)

    run_capture(lake.for_capture(), once=True, report=merge)
    run_silver(ctx)
    assert_equal(ctx, database, "a")
    assert writers(ctx, "a").count("MERGE") >= 5


def _drop(database: Db) -> None:
    database.a.drop()


def _rename(database: Db) -> None:
    database.b.rename("a", dropTarget=True)


def _wider_field(database: Db) -> None:
    database.a.insert_one({"_id": 100, "d": {"new": 1}})


# promise 3
@pytest.mark.parametrize("change", [_drop, _rename, _wider_field])
def test_drops_renames_and_wider_columns_start_spark(
    ctx: LazyContext, database: Db, change: Callable[[Db], None]
) -> None:
    for name in "ab":
        database[name].insert_many([{"_id": number, "d": {"e": 1}} for number in range(3)])
    capture_without_spark(ctx)
    run_silver(ctx)
    change(database)
    database.b.insert_one({"_id": "other"})
    capture_without_spark(ctx)
    with pytest.raises(SparkIsNeeded):
        run_silver(ctx)
    assert '"other"' in live(ctx, "b") or change is _rename, "the other collections are merged"


# promise 2
def test_one_run_merges_in_this_process_and_with_spark(
    ctx: LazyContext, spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    """Spark is started by the first of the threads that needs it."""
    for name in "abc":
        database[name].insert_many([{"_id": number, "d": {"e": 1}} for number in range(3)])
    capture_without_spark(ctx)
    run_silver(ctx)
    started = []

    def start() -> JobContext:
        started.append(pipeline(spark, mongo_uri, database.name, tmp_path / "lake"))
        return started[0]

    database.a.drop()
    database.b.insert_one({"_id": 100, "d": {"new": 1}})
    database.c.insert_one({"_id": 3})
    database.d.insert_one({"_id": 1})
    capture_without_spark(ctx)
    results = run_silver(replace(ctx, with_spark=start))
    engines = {result.table.name: result.engine for result in results}
    assert engines == {"a": "Spark", "b": "Spark", "c": "delta-rs", "d": "delta-rs"}
    assert engines_of_rows(ctx.tables) == {
        **{TableName("silver", name): engine for name, engine in engines.items()},
        TableName("bronze", "test"): "delta-rs",
    }
    assert started
    assert_equal(ctx, database, *"abcd")
    assert run_silver(ctx) == []


def test_a_drop_of_another_collection_leaves_a_small_batch_small(ctx: LazyContext, database: Db) -> None:
    database.a.insert_one({"_id": 1})
    capture_without_spark(ctx)
    run_silver(ctx)
    database.unknown.create_index("x")
    database.unknown.drop()
    database.a.insert_one({"_id": 2})
    capture_without_spark(ctx)
    run_silver(ctx)
    assert_equal(ctx, database, "a")


# promise 2
def test_a_second_snapshot_of_a_table_with_rows_is_swept_by_spark(ctx: LazyContext, database: Db) -> None:
    database.a.insert_many([{"_id": number} for number in range(5)])
    capture_without_spark(ctx)
    run_silver(ctx)
    again = ctx.settings.model_copy(
        update={"capture": ctx.settings.capture.model_copy(update={"snapshot_mode": "always"})}
    )
    database.b.insert_one({"_id": 1})  # the snapshot is later than the first one
    capture_without_spark(replace(ctx, settings=again))
    with pytest.raises(SparkIsNeeded):
        run_silver(ctx)


# promise 2
@pytest.mark.parametrize(
    ("in_memory", "few", "group_bytes", "merges"),
    [
        (64 << 20, 10_000, 256 << 20, 1),
        (64 << 20, 10_000, 1, 3),
        (64 << 20, 0, 256 << 20, 2),
        (0, 0, 256 << 20, 2),
        (0, 0, 1, 4),
    ],
    ids=["few changes", "few, in groups", "many in memory", "many from files", "many from files, in groups"],
)
def test_changes_of_a_table_with_rows_need_no_spark(
    ctx: LazyContext,
    database: Db,
    in_memory: int,
    few: int,
    group_bytes: int,
    merges: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Keys that the table lacks, between and above its keys, changed keys, keys with several changes, and columns."""
    for first in (0, 100, 200):  # a file each
        database.a.insert_many([{"_id": f"{number:03}", "n": number} for number in range(first, first + 100, 2)])
        capture_without_spark(ctx)
        run_silver(ctx)
    monkeypatch.setattr(bronze_rows, "_FEW_BYTES", in_memory)
    monkeypatch.setattr(direct_run, "_FEW", few)
    for name, rows in {"_ROWS": 40, "_LEAST_ROWS": 100}.items():
        monkeypatch.setattr(direct_batch, name, rows)
    monkeypatch.setattr(mergeable_table, "GROUP_BYTES", group_bytes)
    database.a.insert_many([{"_id": f"{number:03}", "n": number, "new": "x"} for number in range(101, 400, 2)])
    database.a.update_many({"n": {"$lt": 120}}, {"$set": {"n": -1, "other": 1.5}})
    database.a.delete_many({"_id": {"$in": ["000", "101", "198", "210"]}})
    before = len(writers(ctx, "a"))
    capture_without_spark(ctx)
    run_silver(ctx)
    assert_equal(ctx, database, "a")
    commits = ["ADD COLUMN", "SET TBLPROPERTIES", *["MERGE"] * merges, "SET TBLPROPERTIES"]
    assert writers(ctx, "a")[before:] == commits
    assert run_silver(ctx) == []


def test_many_batches_of_new_documents_leave_few_files(
    ctx: LazyContext, database: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mergeable_table, "_MANY_FILES", 3)
    for number in range(4):
        database.a.insert_one({"_id": number})
        capture_without_spark(ctx)
        run_silver(ctx)
    assert "OPTIMIZE" in writers(ctx, "a")
    assert_equal(ctx, database, "a")


# promise 2
@pytest.mark.parametrize(
    "step", [(MergeableTable, "load"), (MergeableTable, "merge"), (DeltaRsTables, "set_properties")]
)
@pytest.mark.parametrize("end", ["killed", "overtaken"])
def test_a_batch_that_ends_between_two_commits_is_repeated(
    ctx: LazyContext, database: Db, step: tuple[type, str], end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.a.insert_many([{"_id": number, "n": number} for number in range(20)])
    capture_without_spark(ctx)
    run_silver(ctx)
    database.a.insert_many([{"_id": number, "n": number} for number in range(20, 30)])
    database.a.update_many({"_id": {"$gt": 15, "$lt": 22}}, {"$inc": {"n": 1}})
    capture_without_spark(ctx)
    monkeypatch.setattr(bronze_rows, "_FEW_BYTES", 0)
    work, rivals = getattr(*step), [ctx]

    def interrupted(*args: Any, **others: Any) -> Any:
        if end == "killed":
            raise KeyboardInterrupt
        if rivals:
            run_silver(rivals.pop())
        return work(*args, **others)

    with monkeypatch.context() as patched:
        patched.setattr(*step, interrupted)
        with pytest.raises(KeyboardInterrupt) if end == "killed" else nullcontext():
            run_silver(ctx)
    run_silver(ctx)
    assert_equal(ctx, database, "a")
    assert table(ctx, "a").to_pyarrow_table(columns=["_key"]).num_rows == 30


# promise 2
@pytest.mark.parametrize("step", range(5))
def test_a_first_load_that_is_killed_is_repeated(
    ctx: LazyContext, database: Db, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.a.insert_many([{"_id": number, "n": number} for number in range(5)])
    capture_without_spark(ctx)
    steps = [
        (MergeableTable, "add_columns"),
        (DeltaRsTables, "append_rows"),
        (MergeableTable, "write"),
        (MergeableTable, "load"),
        (DeltaRsTables, "set_properties"),
    ]

    def killed(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(*steps[step], killed)
        with pytest.raises(KeyboardInterrupt):
            run_silver(ctx)
    run_silver(ctx)
    assert_equal(ctx, database, "a")


def test_columns_without_their_stored_shape_are_left_to_spark(
    ctx: LazyContext, database: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.a.insert_one({"_id": 1})
    capture_without_spark(ctx)

    def killed(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(TableAlterer, "set_table_properties", killed)
        with pytest.raises(KeyboardInterrupt):
            run_silver(ctx)
    with pytest.raises(SparkIsNeeded):
        run_silver(ctx)


# promise 2
def test_a_first_load_that_another_run_overtakes_begins_again(
    ctx: LazyContext, database: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.a.insert_many([{"_id": number, "n": number} for number in range(5)])
    capture_without_spark(ctx)
    load, rivals = MergeableTable.load, [ctx]

    def load_second(stored: MergeableTable, *args: Any) -> Merged | None:
        if rivals:
            run_silver(rivals.pop())
        return load(stored, *args)

    monkeypatch.setattr(MergeableTable, "load", load_second)
    run_silver(ctx)
    assert_equal(ctx, database, "a")
    assert writers(ctx, "a").count("MERGE") == 1


@pytest.mark.skipif(PLACE != "folder", reason="a file is put into a folder of this machine")
def test_files_of_another_program_are_left_to_spark_which_refuses_them(ctx: LazyContext, database: Db) -> None:
    database.a.insert_one({"_id": 1})
    capture_without_spark(ctx)
    folder = Path(ctx.tables.lake.path(TableName("silver", "a")))
    folder.mkdir(parents=True)
    (folder / "part-0.parquet").write_bytes(b"")
    with pytest.raises(SparkIsNeeded):
        run_silver(ctx)
    assert not (folder / "_delta_log").exists()


@pytest.mark.skipif(PLACE != "folder", reason="the lake is a folder of this machine")
def test_a_pipeline_without_gold_needs_no_java(mongo_uri: str, database: Db, tmp_path: Path) -> None:
    source = source_of(mongo_uri, database)
    for number in range(2):
        database.a.insert_one({"_id": number})
        done = strandline(tmp_path, "run", "--once", **source)
        assert done.returncode == 0, done.stderr
        assert "silver.a: 1 inserted, 0 updated" in done.stderr
        assert "by delta-rs" in done.stderr
        last = json.loads(done.stderr.splitlines()[-1])
        assert last["message"] == "written by: bronze: delta-rs; silver: delta-rs 1 table"
    database.a.insert_one({"_id": 2})
    assert strandline(tmp_path, "capture", "--once", **source).stdout.endswith(", by delta-rs\n")
    done = strandline(tmp_path, "silver", **source)
    assert done.stdout.startswith("silver.a: 1 inserted, 0 updated in "), done.stderr
    assert done.stdout.endswith(" s, by delta-rs\n")
    status = strandline(tmp_path, "status", **source).stdout
    assert "written by  bronze: delta-rs; silver: delta-rs 1 table" in status
    assert DeltaTable(str(tmp_path / "lake/silver/a")).to_pyarrow_table().num_rows == 3
