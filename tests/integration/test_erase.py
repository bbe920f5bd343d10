"""A document is erased: no table shows it, and in the end no file holds it."""

from __future__ import annotations

import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import bson
import pytest
from bson.raw_bson import RawBSONDocument
from crashing import Crash, CrashingTables
from lakehouse import assert_equal_to_source, assert_streamed_exactly_once, bronze, land, pipeline, silver, with_silver
from pymongo.database import Database
from pyspark.sql import SparkSession

from strandline.control.erasures import ErasedDocuments, Erasures, key_hash
from strandline.control.proof import ProofRange
from strandline.errors import ConfigurationError
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.erase.run_erase import ErasureResult, run_erase
from strandline.jobs.erase.verify import find_values
from strandline.jobs.gold.refresh import refresh_gold
from strandline.jobs.maintenance.run_maintain import run_maintain
from strandline.jobs.offsets.life_cycle import set_desired_state
from strandline.jobs.offsets.move_offset import alter_offset
from strandline.jobs.offsets.show_offset import offset_history
from strandline.jobs.operations.dead_letters import list_dead_letters
from strandline.jobs.silver.rebuild import run_rebuild
from strandline.jobs.snapshot.report import verify_snapshot
from strandline.model.table_schemas import ERASURES, PROOF, PROOF_DDL
from strandline.model.tables import TableName
from strandline.settings.output import GoldSettings, QualitySettings

Db = Database[dict[str, Any]]
PERSON, POISON = "canary-person@example.org", "canary-poison@example.org"
VALUE = "Canary O'Ümlaut <of the mine>"
VALUES = (PERSON, POISON, VALUE, "canary-tag", "canary-before", "canary-state")
SQL = """-- materialized: incremental
-- keys: state
select state, max(name.full) as name, count(*) as people from silver.people where not _deleted group by state"""
EVER = "-- materialized: table\nselect _key, name.full as name from silver.people_history"
SUITE = """table: silver.people
rows: changed
on_failure: quarantine
expectations: [{type: expect_column_values_to_be_in_set, column: grade, value_set: [a, b]}]"""


def people(spark: SparkSession, uri: str, database: Db, root: Path, engine: str, compatibility: str) -> JobContext:
    """A pipeline with a history, archives, a quarantine and gold, and pre-images."""
    files = (("sql", "by_state.sql", SQL), ("sql", "ever.sql", EVER), ("suites", "people.yml", SUITE))
    for name, file, text in files:
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name / file).write_text(text, encoding="utf-8")
    how: dict[str, Any] = {"mode": "change_streams_update_full_with_pre_image", "engine": engine}
    how["notification_enabled_channels"] = ("table", "log")
    children = {f"{database.name}.people": {"tags": {"table": "people_tags"}}}
    ctx = pipeline(spark, uri, database.name, root / "lake", **how)
    ctx = with_silver(ctx, history="scd2", on_drop="archive", children=children, compatibility=compatibility)
    quality = QualitySettings(suites_dir=str(root / "suites"), docs_dir=str(root / "lake" / "docs"))
    update = {"gold": GoldSettings(sql_dir=str(root / "sql")), "quality": quality}
    return replace(ctx, settings=ctx.settings.model_copy(update=update))


def live(database: Db, ctx: JobContext) -> None:
    """The life of two documents, in every place of the lake. In the end the source has neither."""
    database.create_collection("people", changeStreamPreAndPostImages={"enabled": True})
    person = {"_id": PERSON, "name": {"full": VALUE}, "tags": ["x", "canary-tag"], "state": "canary-before"}
    others = [{"_id": f"other-{number}", "name": {"full": "O"}, "state": "s", "grade": "a"} for number in range(9)]
    poison = bson.encode({"_id": POISON, "text": "XXXX"}).replace(b"XXXX", b"\xff\xfe\xfd\xfc")
    database.people.insert_many([person | {"grade": "a"}, *others, RawBSONDocument(poison)])
    land(ctx)
    database.people.update_one({"_id": PERSON}, {"$set": {"state": "canary-state", "grade": VALUE}})
    database.people.update_one({"_id": "other-1"}, {"$set": {"grade": "b"}})
    run_capture(ctx, once=True)
    database.people.update_one({"_id": PERSON}, {"$inc": {"n": 1}})  # it ends a batch
    land(ctx)
    refresh_gold(ctx)
    database.people.drop()
    database.create_collection("people", changeStreamPreAndPostImages={"enabled": True})
    database.people.insert_many([*others, person | {"grade": VALUE}, RawBSONDocument(poison)])
    land(ctx)
    refresh_gold(ctx)
    database.people.delete_many({"_id": {"$in": [PERSON, POISON]}})
    land(ctx)
    database.people.insert_one({"_id": "last", "name": {"full": "L"}, "state": "s", "grade": "a"})
    land(ctx)


def erase(ctx: JobContext, database: Db, **how: Any) -> ErasureResult:
    keys = [f'"{PERSON}"', f'"{POISON}"']
    return run_erase(ctx, f"{database.name}.people", **{"keys": keys, "by": "ops", "why": "a request", **how})


def plan_ranges(ctx: JobContext, database: Db) -> None:
    """Two ranges of a continuous comparison, of which one begins at the document."""
    person, of_collection = bson.encode({"_id": PERSON}), ("test", database.name, "people")
    bounds = (0, None, person), (1, person, None)
    rows = [asdict(ProofRange(*of_collection, *bound, datetime.now(UTC))) for bound in bounds]
    ctx.tables.put_rows(PROOF, PROOF_DDL, rows, "source", "db", "collection", "number")


def traces(ctx: JobContext) -> set[str]:
    """Files under the lake that hold a value: table, kind of file (parquet, json), and column or bytes."""
    found = find_values(ctx.settings, VALUES).traces
    return {f"{one.file.rpartition('/')[0]} {one.file.rpartition('.')[2]} {one.place}" for one in found}


def test_with_now_no_file_holds_an_erased_document_and_what_is_wrong_is_refused(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    database.people.insert_many([{"_id": "other"}, {"_id": PERSON, "name": {"full": VALUE}, "tags": ["canary-tag"]}])
    land(ctx)
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        ({"keys": ["{"]}, "is not valid JSON"),
        ({"keys": ['"nobody"']}, "the lake has no row of 1 of 1 documents"),
        ({"keys": (), "where": "nonsense ="}, "is no condition on silver.people"),
        ({"keys": (), "where": "_key = 'x'"}, "no row of silver.people matches"),
        ({"keys": (), "where": "_key IS NOT NULL", "dry_run": False}, "matches every document of .*: 2"),
        ({"now": True}, "source test is running"),
    )
    for how, reason in refused:
        with pytest.raises(ConfigurationError, match=reason):
            erase(ctx, database, **how)
    database.people.delete_one({"_id": PERSON})
    land(ctx)
    database.people.insert_one({"_id": "last"})
    land(ctx)
    plan_ranges(ctx, database)
    set_desired_state(ctx, "stopped", by="ops", why=None)
    assert traces(ctx)
    result = erase(ctx, database, keys=[f'"{PERSON}"'], dry_run=False, now=True)
    assert (result.documents, result.in_source, result.is_gone) == (1, 0, True)
    assert traces(ctx) == set()
    assert ctx.tables.read(PROOF).count() == 0
    assert [row["gone_at"] is None for row in Erasures(ctx.tables).all("test")] == [False]
    with pytest.raises(ConfigurationError, match=r"documents of .*people were erased after the snapshot"):
        verify_snapshot(ctx)
    set_desired_state(ctx, "running", by="ops", why=None)
    database.people.insert_one({"_id": "after"})
    land(ctx)
    assert_equal_to_source(ctx, database, "people")


@pytest.mark.long
@pytest.mark.parametrize(
    ("engine", "compatibility"), [("native", "portable"), ("spark", "portable"), ("native", "native")]
)
def test_an_erased_document_is_hidden_at_once_and_gone_from_every_file_after_the_retention(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, engine: str, compatibility: str
) -> None:
    ctx = people(spark, mongo_uri, database, tmp_path, engine, compatibility)
    live(database, ctx)
    counted = erase(ctx, database)
    assert (counted.documents, counted.in_source) == (2, 0)
    assert {table for table, rows in counted.rows.items() if rows} >= {
        *("bronze.test", "silver.people", "silver.people_history", "silver.people_quarantine"),
        *("control.dead_letters", "silver.people_tags", next(table for table in counted.rows if "_dropped_" in table)),
    }
    assert list_dead_letters(ctx)
    assert not ctx.tables.read(TableName("gold", "ever")).where("name LIKE 'Canary%'").isEmpty()

    assert erase(ctx, database, dry_run=False).rows == counted.rows
    assert not list_dead_letters(ctx)
    assert bronze(ctx).where("key LIKE '%canary%' OR CAST(envelope AS STRING) LIKE '%canary%'").isEmpty()
    assert silver(ctx, "people").count() == 10
    assert ctx.tables.read(TableName("gold", "ever")).where("_key LIKE '%canary%'").isEmpty()
    result = run_rebuild(ctx, "silver.people", dry_run=True)
    assert (result.missing, result.extra, result.different) == (0, 0, 0)
    (row,) = Erasures(ctx.tables).all("test")
    assert row["hidden_at"] is not None
    assert row["gone_at"] is None
    hashes = {row["key_hash"] for row in ctx.tables.read(ERASURES).collect()}
    secret = Erasures(ctx.tables).secret()
    assert hashes == {key_hash(f'"{key}"', secret) for key in (PERSON, POISON)}
    assert traces(ctx), "older versions hold the documents"

    run_maintain(without_retention(ctx))
    assert traces(ctx) == set()
    assert Erasures(ctx.tables).all("test")[0]["gone_at"] is not None
    database.people.insert_one({"_id": "after", "name": {"full": "A"}, "state": "s", "grade": "a"})
    land(ctx)
    assert silver(ctx, "people").where("_key = '\"after\"'").count() == 1


def without_retention(ctx: JobContext) -> JobContext:
    """A pipeline for which all that was removed from a table was removed long ago."""
    times = dict.fromkeys(("retention_hours", "log_retention_hours", "max_downtime_hours"), 0)
    maintenance = ctx.settings.maintenance.model_copy(update=times)
    return replace(ctx, settings=ctx.settings.model_copy(update={"maintenance": maintenance}))


@pytest.mark.long
def test_old_events_of_an_erased_document_do_not_land_and_what_came_back_is_erased_again(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    database.people.insert_one({"_id": "other", "n": 1})
    land(ctx)
    begin = offset_history(ctx, 1)[0].resume_token
    database.people.insert_one({"_id": PERSON})
    land(ctx)
    one = {"keys": [f'"{PERSON}"'], "dry_run": False}
    database.people.delete_one({"_id": PERSON})
    database.people.insert_one({"_id": "last"})
    land(ctx)
    assert erase(ctx, database, **one).in_source == 0
    assert "source" not in " ".join(notes(ctx))

    capture_again(ctx, begin)
    assert bronze(ctx).where(f"key = '\"{PERSON}\"'").isEmpty(), "old events do not land"
    assert_equal_to_source(ctx, database, "people")
    monkeypatch.setattr(ErasedDocuments, "refresh", lambda _: None)  # a capture that was committing meanwhile
    capture_again(ctx, begin)
    monkeypatch.undo()
    assert not bronze(ctx).where(f"key = '\"{PERSON}\"'").isEmpty()
    assert "1 documents came back with old events" in notes(ctx)[0]
    assert bronze(ctx).where(f"key = '\"{PERSON}\"'").isEmpty()
    assert_equal_to_source(ctx, database, "people")
    assert silver(ctx, "people").count() == 2

    database.people.insert_many([{"_id": PERSON}, {"_id": "newest"}])
    land(ctx)
    assert "THE SOURCE BROUGHT 1 ERASED DOCUMENTS AGAIN" in notes(ctx)[0]
    assert [row["again"] for row in Erasures(ctx.tables).all("test")] == [1, 1]
    assert_equal_to_source(ctx, database, "people")
    result = erase(ctx, database, keys=(), where=f"_key = '\"{PERSON}\"'")
    assert (result.documents, result.in_source) == (1, 1)


def capture_again(ctx: JobContext, token: str | None) -> None:
    set_desired_state(ctx, "stopped", by="ops", why=None)
    alter_offset(ctx, str(token), by="ops", why=None)
    set_desired_state(ctx, "running", by="ops", why=None)
    land(ctx)


def test_an_erasure_beside_a_running_capture_loses_nothing_and_fences_nobody(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx, stop = pipeline(spark, mongo_uri, database.name, tmp_path), threading.Event()
    database.people.insert_many([{"_id": PERSON, "name": VALUE}, {"_id": "other"}])
    land(ctx)
    committed = threading.Semaphore(0)

    def write() -> int:
        for number in count():
            if stop.is_set():
                return number
            database.people.insert_one({"_id": f"during-{number:05}"})
            time.sleep(0.05)
        raise AssertionError

    with ThreadPoolExecutor(2) as pool:
        capture = pool.submit(run_capture, ctx, stop=stop, report=lambda *_: committed.release())
        database.people.delete_one({"_id": PERSON})
        writes = pool.submit(write)
        try:
            assert committed.acquire(timeout=60)
            erase(ctx, database, keys=[f'"{PERSON}"'], dry_run=False)
            while committed.acquire(blocking=False):  # those until now
                pass
            goes_on = committed.acquire(timeout=60)
            assert goes_on, (capture.done() and capture.exception(), writes.done() and writes.exception())
        finally:
            stop.set()
        assert writes.result() > 20
        capture.result()
    land(ctx)
    assert_equal_to_source(ctx, database, "people")
    assert bronze(ctx).where(f"key = '\"{PERSON}\"'").isEmpty()
    assert_streamed_exactly_once(ctx)


@pytest.mark.sweep
@pytest.mark.parametrize("engine", ["native", "spark"])
def test_an_erasure_that_ends_at_any_of_its_commits_is_finished_by_the_next_one_or_by_maintain(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    begun = pipeline(spark, mongo_uri, database.name, tmp_path / "begun", engine=engine)
    database.people.insert_many([{"_id": "other"}, {"_id": PERSON, "name": {"full": VALUE}, "tags": ["canary-tag"]}])
    land(begun)
    database.people.delete_one({"_id": PERSON})
    land(begun)  # this batch, its cut and the properties of silver end with a token of the person
    database.people.insert_one({"_id": "last"})
    land(begun)
    plan_ranges(begun, database)
    set_desired_state(begun, "stopped", by="ops", why=None)
    for number, after in ((number, after) for number in count(1) for after in (0, 1)):
        root = tmp_path / f"{number}-{after}"
        shutil.copytree(tmp_path / "begun", root)
        ctx = pipeline(spark, mongo_uri, database.name, root, engine=engine)
        tables = CrashingTables(spark, ctx.tables.lake, {"left": number, "after": after})
        now = {"keys": [f'"{PERSON}"'], "dry_run": False, "now": True}
        with monkeypatch.context() as patched:
            tables.counts_native_commits(patched)
            with suppress(Crash):
                erase(replace(ctx, tables=tables), database, **now)
        if not tables.ended:
            assert number > 8, "commits escape the test"
            return
        if after:
            run_maintain(ctx)  # it hides the documents
            run_maintain(without_retention(ctx))
        if not after or not Erasures(ctx.tables).all("test"):
            erase(ctx, database, **now)
        assert traces(ctx) == set(), tables.ended
        assert_equal_to_source(ctx, database, "people")
        shutil.rmtree(root)


def notes(ctx: JobContext) -> list[str]:
    return [row.note for row in run_maintain(ctx) if row.table == str(ERASURES) and row.note]
