"""Capture modes and filters on a real server: what a stream shows, and what reaches the lake."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import bson
import pytest
from examined import examined
from lakehouse import assert_streamed_exactly_once, bronze, documents_in_silver, pipeline
from pymongo import MongoClient
from pymongo.database import Database
from pyspark.sql import SparkSession
from stream_reading import failing, needs_failpoints

from pipelines.errors import ConfigurationError
from pipelines.jobs.capture.job import run_capture
from pipelines.jobs.selection import checked_selection, inspect_selection, selection_of
from pipelines.jobs.silver.job import run_silver
from pipelines.settings.capture import CaptureSettings
from pipelines.source.change_stream import StreamReader
from pipelines.source.client import AnyClient, find_collection, operation_time, token_data
from pipelines.source.deployment import inspect_deployment
from pipelines.source.fields import FieldRewriter
from pipelines.source.ranges import Range, ReadOptions, read_range
from pipelines.source.resume import ResumePoint
from pipelines.source.stages import Selection
from pipelines.source.stream_opening import StreamLimits, open_stream, token_at

Db = Database[dict[str, Any]]
IMAGES = {"changeStreamPreAndPostImages": {"enabled": True}}
ALL_IMAGES = "change_streams_update_full_with_pre_image"
SALT = "a pinch of salt"


def selection(**capture: Any) -> Selection:
    return selection_of(CaptureSettings(**capture))


def shown(raw_client: AnyClient, selected: Selection, start: ResumePoint) -> list[dict[str, Any]]:
    """Events that a stream shows, up to the present, as the server sends them."""
    end = token_data(token_at(raw_client, Selection(), ResumePoint(cluster_time=operation_time(raw_client))))
    events = []
    with open_stream(raw_client, selected, start, StreamLimits(), True) as stream:
        while stream.resume_token is None or stream.resume_token["_data"] < end:
            found = stream.try_next()
            if found is not None:
                events.append(bson.decode(found.raw))
    return events


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
    assert [event["operationType"] for event in events if event["ns"]["db"] == database.name] == ["insert", "drop"]


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
def test_filters_that_select_nothing_are_loud(
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


def test_an_exclusion_that_leaves_out_nothing_is_told(mongo: MongoClient[Any], database: Db) -> None:
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


PERSON: dict[str, Any] = {
    "_id": 1,
    "ssn": "SECRET-1",
    "mail": "SECRET-mail",
    "name": {"first": "SECRET-name", "titles": ["SECRET-title"]},
    "contacts": [{"phone": "SECRET-2", "kind": "home"}, {"phone": "SECRET-3"}],
    "nested": [[{"phone": "SECRET-4", "n": 1}]],
    "contacts.phone": "SECRET-5",
    "address": {"zip": "1000", "city": "Bern"},
}
RULES = {
    "field_exclude_list": "*.people.ssn, *.people.contacts.phone, *.people.nested.phone",
    "field_hash_list": "*.people.mail",
    "field_hash_salt": SALT,
    "field_mask_list": "*.people.name",
    "field_renames": "*.people.address.zip:postcode, *.people.address.old:city",
}


def change_every_shape(database: Db) -> None:
    """Each way in which an update names a field: dotted, by index, as a parent, unset, truncated, replaced."""
    people, one = database.people, {"_id": 1}
    people.update_one(
        one,
        {"$set": {"ssn": "SECRET-6", "contacts.0.phone": "SECRET-7", "contacts.1.kind": "work", "address.zip": "2000"}},
    )
    people.update_one(
        one,
        {
            "$set": {
                "contacts.2": {"phone": "SECRET-8", "kind": "new"},
                "mail": "SECRET-mail2",
                "name.first": "SECRET-9",
            }
        },
    )
    people.update_one(
        one,
        {"$set": {"contacts": [{"phone": "SECRET-10", "kind": "only"}], "nested": [[{"phone": "SECRET-11", "n": 2}]]}},
    )
    people.update_one(one, {"$unset": {"ssn": 1, "contacts.0.phone": 1, "address.zip": 1}})
    people.update_one(
        one, [{"$set": {"nested": {"$slice": ["$nested", 1]}, "address": {"old": "x", "city": "y", "zip": "3000"}}}]
    )
    people.insert_one(PERSON | {"_id": 2})
    people.replace_one({"_id": 2}, {"ssn": "SECRET-12", "contacts": [{"phone": "SECRET-13", "kind": "again"}]})
    people.insert_one(PERSON | {"_id": 3})
    people.delete_one({"_id": 3})


# scenario: M04, M06, B04, S10
def test_a_hidden_field_reaches_no_byte_of_the_lake(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    database.create_collection("people", **IMAGES)
    database.create_collection("other", **IMAGES)
    database.people.insert_one(PERSON)
    database.other.insert_one({"_id": 1, "ssn": "kept", "contacts": [{"phone": "kept"}]})
    ctx = pipeline(
        spark,
        mongo_uri,
        database.name,
        tmp_path,
        mode=ALL_IMAGES,
        full_update_type="post_image",
        json_columns="stored",
        **RULES,
    )
    run_capture(ctx, once=True)
    change_every_shape(database)
    database.other.update_one({"_id": 1}, {"$set": {"contacts.0.phone": "kept too"}})
    run_capture(ctx, once=True)
    run_silver(ctx)

    rows = bronze(ctx).collect()
    assert [
        row for row in rows if "SECRET" in str(row.asDict(recursive=True)) or b"SECRET" in bytes(row["envelope"] or b"")
    ] == []
    assert_streamed_exactly_once(ctx)
    read = next(bson.decode(row["envelope"]) for row in rows if row["op"] == "r" and row["collection"] == "people")
    assert read == {
        "_id": 1,
        "mail": sha256(f"{SALT}SECRET-mail".encode()).hexdigest(),
        "name": {"first": "****", "titles": ["****"]},
        "contacts": [{"kind": "home"}, {}],
        "nested": [[{"n": 1}]],
        "address": {"postcode": "1000", "city": "Bern"},
    }
    events = [
        bson.decode(row["envelope"])
        for row in sorted(rows, key=lambda row: row["position"] or "")
        if row["operation_type"] == "update"
    ]
    people = [event for event in events if event["ns"]["coll"] == "people"]
    updates = [event["updateDescription"] for event in people]
    assert updates[0]["updatedFields"] == {"address.postcode": "2000", "contacts.1.kind": "work"}
    assert updates[1]["updatedFields"]["contacts.2"] == {"kind": "new"}
    assert updates[2]["updatedFields"] == {"contacts": [{"kind": "only"}], "nested": [[{"n": 2}]]}
    assert updates[3]["removedFields"] == ["address.postcode"]
    assert people[4]["fullDocument"]["address"] == {"old": "x", "city": "y", "postcode": "3000"}  # both values kept
    assert all(before["fullDocumentBeforeChange"].keys() >= {"_id", "contacts"} for before in people)
    assert [event["fullDocument"]["contacts"] for event in events if event["ns"]["coll"] == "other"] == [
        [{"phone": "kept too"}]
    ]
    live = [bson.decode(document) for document in documents_in_silver(ctx, "people").values()]
    assert sorted((person["_id"], person["contacts"]) for person in live) == [
        (1, [{"kind": "only"}]),
        (2, [{"kind": "again"}]),
    ]


# scenario: M04
def test_the_server_already_leaves_excluded_fields_out(raw_client: AnyClient, database: Db) -> None:
    database.create_collection("people", **IMAGES)
    start = ResumePoint(token=token_at(raw_client, Selection()))
    database.people.insert_one(PERSON)
    change_every_shape(database)
    database.other.insert_one(PERSON)
    database.other.update_one({"_id": 1}, {"$set": {"ssn": "kept", "contacts.0.phone": "kept"}})
    exclude = f"{database.name}.people.ssn,{database.name}.people.contacts.phone"
    selected = selection(mode=ALL_IMAGES, field_exclude_list=exclude, scope="database", target=database.name)
    plain = selection(mode=ALL_IMAGES, scope="database", target=database.name)
    sent, all_of_it = shown(raw_client, selected, start), shown(raw_client, plain, start)
    rewriter = FieldRewriter(selected.fields)
    last_word = [[rewriter.rewrite_event(bson.encode(event)) for event in events] for events in (sent, all_of_it)]
    assert last_word[0] == last_word[1]  # the server's part changes nothing but the way
    for event, before in zip(sent, all_of_it, strict=True):
        if event["ns"]["coll"] == "other":
            assert event == before
            continue
        update = event.get("updateDescription", {})
        assert not {"ssn", "contacts.0.phone"} & {*update.get("updatedFields", ()), *update.get("removedFields", ())}
        for name in ("fullDocument", "fullDocumentBeforeChange"):
            assert (event.get(name) is None) == (before.get(name) is None)
            assert "ssn" not in (event.get(name) or {})
            assert not any("phone" in contact for contact in (event.get(name) or {}).get("contacts", ()))
    people = find_collection(database, "people")
    assert people is not None
    read = read_range(raw_client, people, Range(), operation_time(raw_client), ReadOptions(selected.fields))
    assert b"ssn" not in b"".join(document for documents in read for document in documents)


def test_field_rules_hold_from_the_reader_on(raw_client: AnyClient, database: Db) -> None:
    start = ResumePoint(token=token_at(raw_client, Selection()))
    database.people.insert_one(PERSON)
    selected = selection(scope="database", target=database.name, **RULES)
    events: list[bytes] = []
    deadline = time.monotonic() + 30
    with closing(StreamReader(raw_client, selected, start).batches()) as batches:
        while b"insert" not in b"".join(events) and time.monotonic() < deadline:
            events += next(batches).events
    assert b"postcode" in b"".join(events)
    assert b"SECRET" not in b"".join(events)


# scenario: M01, M02, B14
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
