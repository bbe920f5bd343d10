"""Capture modes and filters on a real server: what a stream shows, and what reaches the lake."""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crashing import Crash
from examined import examined
from lakehouse import assert_equal_to_source, assert_streamed_exactly_once, bronze, pipeline
from pymongo import MongoClient
from pymongo.database import Database
from pyspark.sql import SparkSession
from stream_reading import failing, needs_failpoints, selection, shown

from strandline.bronze.writer import BronzeWriter
from strandline.errors import ConfigurationError
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.capture.stream_loop import CaptureResult
from strandline.jobs.selection import checked_selection, inspect_selection
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.table_schemas import bronze_table
from strandline.settings.capture import CaptureSettings
from strandline.source.client import AnyClient
from strandline.source.deployment import inspect_deployment
from strandline.source.resume import ResumePoint
from strandline.source.stages import Selection
from strandline.source.stream_opening import token_at

Db = Database[dict[str, Any]]
IMAGES = {"changeStreamPreAndPostImages": {"enabled": True}}
ALL_IMAGES = "change_streams_update_full_with_pre_image"


def names(events: list[dict[str, Any]], db: Db) -> list[str]:
    """``operation collection`` of every event of data, the database's own prefix taken away."""
    data = [event for event in events if event["operationType"] in ("insert", "update", "replace", "delete")]
    return [
        f"{event['operationType']} {event['ns']['db'].removeprefix(db.name)}.{event['ns']['coll']}" for event in data
    ]


@pytest.fixture
def two_databases(mongo: MongoClient[Any], database: Db, raw_client: AnyClient) -> Iterator[tuple[ResumePoint, Db]]:
    """One insert in each of five collections of two databases, then an update, a replace and a delete in the first."""
    other = mongo[f"{database.name}X"]
    start = ResumePoint(token=token_at(raw_client, Selection()))
    for collection in (database["a"], database["ab"], database["a.b"], other["a"], other["A"]):
        collection.insert_one({"_id": 1, "v": collection.name})
    database["a"].update_one({"_id": 1}, {"$set": {"v": 2}})
    database["a"].replace_one({"_id": 1}, {"v": 3})
    database["a"].delete_one({"_id": 1})
    yield start, database
    mongo.drop_database(other.name)


LITERAL = {"filters_match_mode": "literal"}
EVERYTHING = [
    "insert .a",
    "insert .ab",
    "insert .a.b",
    "insert X.a",
    "insert X.A",
    "update .a",
    "replace .a",
    "delete .a",
]


# scenario: M01, M02, M07, M08, M10, B14
@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ({"database_include_list": "{db}"}, [n for n in EVERYTHING if " ." in n]),
        ({"database_include_list": "{db}.?"}, EVERYTHING),
        ({"database_exclude_list": "{db}.*", "collection_include_list": "{db}.*"}, []),
        ({"database_exclude_list": "{db}", "collection_include_list": "{db}.*"}, ["insert X.a", "insert X.A"]),
        (
            {"collection_include_list": r" {db}\.a , {db}X\.a "},
            ["insert .a", "insert X.a", "update .a", "replace .a", "delete .a"],
        ),
        ({"collection_include_list": "{db}.ab"}, ["insert .ab"]),
        ({"collection_include_list": r"{db}\.a\.b"}, ["insert .a.b"]),
        ({"collection_include_list": "{db}.a.b", **LITERAL}, ["insert .a.b"]),
        (
            {
                "collection_include_list": "{db}.a, {db}X.A",
                "filters_match_mode": "literal",
                "skipped_operations": "u,d",
            },
            ["insert .a", "insert X.A"],
        ),
        ({"database_include_list": "{db}X", **LITERAL}, ["insert X.a", "insert X.A"]),
        ({"database_include_list": "{db}.*", **LITERAL}, []),
        ({"database_include_list": "{db}", "collection_exclude_list": r"{db}\.a(b|\.b)?"}, []),
        (
            {"database_include_list": "{db}", "collection_exclude_list": "{db}.a", **LITERAL},
            ["insert .ab", "insert .a.b"],
        ),
        ({"database_include_list": "{db}", "skipped_operations": "c,t"}, ["update .a", "replace .a", "delete .a"]),
        ({"database_include_list": "{db}", "skipped_operations": "none"}, [n for n in EVERYTHING if " ." in n]),
    ],
    ids=str,
)
def test_lists_and_skipped_operations(
    raw_client: AnyClient, two_databases: tuple[ResumePoint, Db], lists: dict[str, str], expected: list[str]
) -> None:
    start, db = two_databases
    selected = selection(**{key: value.replace("{db}", db.name) for key, value in lists.items()})
    assert names(shown(raw_client, selected, start), db) == expected
    if "skipped_operations" not in lists:  # the snapshot admits the same collections
        namespaces = [name.split(" ")[1] for name in EVERYTHING]
        admitted = {
            name for name in namespaces if selected.admits(db.name + name.partition(".")[0], name.partition(".")[2])
        }
        assert admitted == {name.split(" ")[1] for name in expected}


# scenario: H06, H07, B15, B09
def test_a_users_stages_filter_data_and_no_control_event(raw_client: AnyClient, database: Db) -> None:
    start = ResumePoint(token=token_at(raw_client, Selection()))
    database.a.insert_many([{"_id": n, "city": "Paris" if n == 2 else "Rome"} for n in range(4)])
    database.b.insert_one({"_id": 9, "city": "Paris"})
    database.a.rename("c")
    database.c.drop()
    for order, data in (
        ("internal_first", ["insert .a"]),
        ("user_first", ["insert .a"]),
        ("user_only", ["insert .a", "insert .b"]),
    ):
        stages = [{"$match": {"fullDocument.city": "Paris"}}, {"$set": {"fullDocument.seen": True}}]
        capture = {
            "collection_include_list": rf"{database.name}\.a",
            "cursor_pipeline": json.dumps(stages),
            "cursor_pipeline_order": order,
        }
        events = shown(raw_client, selection(**capture), start)
        assert names(events, database) == data
        assert [event["fullDocument"]["seen"] for event in events if event["operationType"] == "insert"] == [
            True
        ] * len(data)
        assert [event["operationType"] for event in events if event["ns"]["db"] == database.name][-2:] == [
            "rename",
            "drop",
        ]


# scenario: M09, B15
@pytest.mark.parametrize("stage", [{"$redact": "$$PRUNE"}, {"$match": {"fullDocument.city": "Paris"}}], ids=str)
def test_signals_of_the_source_pass_a_users_stages(raw_client: AnyClient, database: Db, stage: dict[str, Any]) -> None:
    start = ResumePoint(token=token_at(raw_client, Selection()))
    database.a.insert_one({"_id": 1})
    database.signals.insert_one({"_id": 2, "type": "log"})
    database.signals.update_one({"_id": 2}, {"$set": {"type": "what"}})
    database.a.drop()
    channel = {"signal_enabled_channels": "source", "signal_data_collection": f"{database.name}.signals"}
    events = shown(raw_client, selection(cursor_pipeline=json.dumps([stage]), **channel), start)
    assert names(events, database) == ["insert .signals"]
    kinds = [event["operationType"] for event in events if event["ns"]["db"] == database.name]
    assert kinds == ["create", "create", "insert", "drop"]


# scenario: B03, B04, D04
def test_every_mode_brings_the_images_that_it_names(raw_client: AnyClient, database: Db) -> None:
    database.create_collection("a", **IMAGES)
    start = ResumePoint(token=token_at(raw_client, Selection()))
    database.a.insert_one({"_id": 1, "v": 1})
    database.a.update_one({"_id": 1}, {"$set": {"v": 2}})
    database.a.update_one({"_id": 1}, {"$set": {"v": 3}})
    database.a.delete_one({"_id": 1})
    expected = {
        ("change_streams", "lookup"): [(1, "-"), ("-", "-"), ("-", "-"), ("-", "-")],
        ("change_streams_update_full", "lookup"): [(1, "-"), (None, "-"), (None, "-"), ("-", "-")],
        ("change_streams_update_full", "post_image"): [(1, "-"), (2, "-"), (3, "-"), ("-", "-")],
        ("change_streams_with_pre_image", "lookup"): [(1, "-"), ("-", 1), ("-", 2), ("-", 3)],
        (ALL_IMAGES, "post_image"): [(1, "-"), (2, 1), (3, 2), ("-", 3)],
    }
    for (mode, kind), images in expected.items():
        selected = selection(mode=mode, full_update_type=kind, scope="collection", target=f"{database.name}.a")
        events = shown(raw_client, selected, start)
        assert [
            (_value(event, "fullDocument"), _value(event, "fullDocumentBeforeChange")) for event in events
        ] == images, mode


def _value(event: dict[str, Any], name: str) -> Any:
    """``v`` of the document, None for a null, a dash where there is no such field."""
    return "-" if name not in event else None if event[name] is None else event[name]["v"]


def test_images_that_a_new_collection_does_not_record_are_null_and_stop_nothing(
    raw_client: AnyClient, database: Db
) -> None:
    start = ResumePoint(token=token_at(raw_client, Selection()))
    database.unrecorded.insert_one({"_id": 1, "v": 1})
    database.unrecorded.update_one({"_id": 1}, {"$set": {"v": 2}})
    selected = selection(mode=ALL_IMAGES, full_update_type="post_image", scope="database", target=database.name)
    events = [event for event in shown(raw_client, selected, start) if event["operationType"] == "update"]
    assert [(event["fullDocument"], event["fullDocumentBeforeChange"]) for event in events] == [(None, None)]
    assert events[0]["updateDescription"]["updatedFields"] == {"v": 2}


def test_images_that_are_off_are_refused_with_the_command_that_enables_them(
    spark: SparkSession, mongo_uri: str, mongo: MongoClient[Any], database: Db, tmp_path: Path
) -> None:
    database.create_collection("on", **IMAGES)
    for name in ("off1", "off2"):
        database[name].insert_one({"_id": 1})
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, mode="change_streams_with_pre_image")
    with pytest.raises(ConfigurationError, match="collMod") as caught:
        run_capture(ctx, once=True)
    told = examined(ctx)["source.images"]
    assert (told.severity, told.found, told.fix) == ("error", caught.value.message, caught.value.next_step)
    assert f"{database.name}.off1, {database.name}.off2" in told.found
    assert ".on" not in told.found
    assert not any(
        "changeStreamPreAndPostImages" in info["options"] for info in database.list_collections(filter={"name": "off1"})
    )
    for name in ("off1", "off2"):
        database.command("collMod", name, **IMAGES)
    assert examined(ctx)["source.images"].found.startswith("recorded by every")
    checked_selection(
        CaptureSettings(mode="change_streams", scope="database", target=database.name), mongo, inspect_deployment(mongo)
    )


# scenario: M11
def test_filters_that_select_no_collection_are_logged_as_a_warning(
    mongo: MongoClient[Any], database: Db, caplog: pytest.LogCaptureFixture
) -> None:
    database.people.insert_one({"_id": 1})
    deployment = inspect_deployment(mongo)
    scope: dict[str, Any] = {"scope": "database", "target": database.name}
    with caplog.at_level(logging.WARNING, logger="strandline.capture"):
        checked_selection(
            CaptureSettings(**scope, collection_include_list=f"{database.name}.PEOPLE"), mongo, deployment
        )
    assert "NO COLLECTION IS CAPTURED" in caplog.text
    typo = selection(
        **scope,
        collection_include_list=f"{database.name}.people,{database.name}.poeple",
        field_mask_list="*.persons.ssn",
    )
    assert [warning.split(" (")[0] for warning in inspect_selection(typo, mongo).warnings] == [
        "capture.collection_include_list entry 2",
        "the capture rule for field *.persons.ssn",
    ]
    skipping = selection(**scope, skipped_operations="u")
    assert inspect_selection(skipping, mongo).warnings == (
        "silver is stale on purpose: capture.skipped_operations leaves out update, replace",
    )
    fine = selection(**scope, collection_include_list=f"{database.name}.people", field_mask_list="*.people.ssn")
    assert inspect_selection(fine, mongo).warnings == ()


def test_an_exclusion_that_matches_no_collection_is_logged(mongo: MongoClient[Any], database: Db) -> None:
    for name in ("people", "salaries"):
        database[name].insert_one({"_id": 1})
    scope: dict[str, Any] = {"scope": "database", "target": database.name, "database_exclude_list": "nowhere"}
    excluding = selection(**scope, collection_exclude_list=[rf"{database.name}\.salaries", rf"{database.name}\.salary"])
    found = inspect_selection(excluding, mongo)
    assert [each.name for each in found.collections] == ["people"]
    assert found.warnings == (
        "capture.database_exclude_list entry 1 (nowhere) leaves out no collection that exists now",
        rf"capture.collection_exclude_list entry 2 ({database.name}\.salary) leaves out no collection that exists now",
    )


# scenario: T02
def test_more_collections_than_there_may_be_are_a_warning_or_an_end(
    mongo: MongoClient[Any], database: Db, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b", "c"):
        database[name].insert_one({})
    deployment = inspect_deployment(mongo)
    settings: dict[str, Any] = {"scope": "database", "target": database.name}
    with caplog.at_level(logging.WARNING, logger="strandline.capture"):
        checked_selection(CaptureSettings(**settings, guardrail_collections_max=3), mongo, deployment)
        assert caplog.text == ""
        checked_selection(CaptureSettings(**settings, guardrail_collections_max=2), mongo, deployment)
    assert "3 collections are captured, and capture.guardrail_collections_max is 2" in caplog.text
    settings["guardrail_collections_limit_action"] = "fail"
    with pytest.raises(ConfigurationError, match="3 collections"):
        checked_selection(CaptureSettings(**settings, guardrail_collections_max=2), mongo, deployment)
    narrowed = CaptureSettings(**settings, guardrail_collections_max=2, collection_exclude_list=f"{database.name}.c")
    checked_selection(narrowed, mongo, deployment)


# scenario: M01, M02, B14
@pytest.mark.check
@needs_failpoints
def test_a_changed_filter_does_not_lose_the_position(
    spark: SparkSession, mongo_uri: str, mongo: MongoClient[dict[str, Any]], database: Db, tmp_path: Path
) -> None:
    db = database.name
    for number in range(5):
        database[f"z{number}"].insert_one({"_id": 1})
    ended = threading.Event()
    ended.set()
    with failing(
        mongo, "find", "alwaysOn", blockConnection=True, blockTimeMS=300
    ):  # else five chunks may be read before it stops
        run_capture(
            pipeline(spark, mongo_uri, db, tmp_path, snapshot_max_threads=1), stop=ended
        )  # the snapshot has hardly begun
    database.a.insert_one({"_id": 1})
    database.b.insert_one({"_id": 1})  # the last event, which the next filter no longer admits
    ctx = pipeline(spark, mongo_uri, db, tmp_path, collection_exclude_list=f"{db}.z.")
    run_capture(ctx, once=True)
    assert bronze(ctx).where("op = 'r'").count() < 5
    discarded = [json.loads(row["after"]) for row in bronze(ctx).where("operation_type = 'discarded'").collect()]
    assert bronze(ctx).where("op = 'r'").count() + len(discarded) == 5
    assert [row["selected"] for row in discarded] == [False] * len(discarded)
    assert bronze(ctx).where("operation_type = 'completed'").count() == 1
    database.a.insert_one({"_id": 2})
    database.b.insert_one({"_id": 2})
    database.a.delete_one({"_id": 1})
    narrowed = {"collection_include_list": f"{db}.a"}
    run_capture(
        pipeline(spark, mongo_uri, db, tmp_path, **narrowed), once=True
    )  # ends with a delete, which the next one skips
    database.a.insert_one({"_id": 3, "keep": True})
    database.a.delete_one({"_id": 2})
    piped = narrowed | {"skipped_operations": "d", "cursor_pipeline": '[{"$match": {"fullDocument.keep": true}}]'}
    ctx = pipeline(spark, mongo_uri, db, tmp_path, **piped, cursor_pipeline_order="user_first")
    run_capture(ctx, once=True)
    data = bronze(ctx).where("op in ('c', 'd')").orderBy("position").collect()
    assert [(row["op"], row["collection"], row["key"]) for row in data] == [
        ("c", "a", "1"),
        ("c", "b", "1"),
        ("c", "a", "2"),
        ("d", "a", "1"),
        ("c", "a", "3"),
    ]
    assert_streamed_exactly_once(ctx)


# scenario: A16, G14, H07
def test_a_collection_that_was_renamed_before_the_filters_admitted_it_is_read(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = pipeline(spark, mongo_uri, database.name, tmp_path, collection_exclude_list=rf"{database.name}\.staging")
    database.orders.insert_one({"_id": 0})
    database.staging.insert_many([{"_id": number} for number in range(1, 6)])
    run_capture(before, once=True)
    database.staging.rename("orders", dropTarget=True)  # while nobody captures
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)

    def killed(*_: object, **__: object) -> None:
        raise Crash

    with monkeypatch.context() as changed:
        changed.setattr(BronzeWriter, "commit", killed)
        with pytest.raises(Crash):  # the new filters are stored, and the rename is not read
            run_capture(ctx, once=True)
    version = ctx.tables.version(bronze_table("test"))
    assert run_capture(ctx, once=True).documents == 5
    assert {commit.operation for commit in ctx.tables.commits_after(bronze_table("test"), version)} == {"WRITE"}
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "orders")


# scenario: E02, G14
def test_changed_filters_are_stored_after_a_commit_that_fences_other_captures(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    run_capture(pipeline(spark, mongo_uri, database.name, tmp_path, collection_include_list=r".*\.a"), once=True)
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    version = ctx.tables.version(bronze_table("test"))
    run_capture(ctx, once=True)
    newest_first = [commit.operation for commit in ctx.tables.commits_after(bronze_table("test"), version)]
    assert newest_first[-1] == "WRITE", newest_first
    assert "SET TBLPROPERTIES" in newest_first


# scenario: A16, A17, G14, H11
@pytest.mark.long
def test_a_collection_that_the_filters_come_to_admit_is_read_and_the_others_are_not(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    def capture(*names: str) -> CaptureResult:
        return run_capture(
            pipeline(spark, mongo_uri, database.name, tmp_path, collection_include_list=list(names)), once=True
        )

    a, b = (f"{database.name}\\.{name}" for name in "ab")
    for name in "ab":
        database[name].insert_many([{"_id": number} for number in range(5)])
    assert capture(a).documents == 5
    database.a.insert_one({"_id": 5})
    assert (added := capture(a, b)).documents == 5
    assert added.events == 1
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, collection_include_list=[a, b])
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "a", "b")
    assert capture(a).documents == 0
    database.b.delete_one({"_id": 1})
    database.b.insert_one({"_id": 6})
    database.a.delete_one({"_id": 2})
    capture(a)
    assert capture(b, a).documents == 5  # in another order, and b came back
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "a", "b")
    assert Counter(row["collection"] for row in bronze(ctx).where("op = 'r'").collect()) == {"a": 5, "b": 10}
