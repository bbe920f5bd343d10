"""Fields that are left out, masked, hashed or renamed: no byte of the lake holds what a rule hides."""

from __future__ import annotations

import time
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import bson
from lakehouse import assert_streamed_exactly_once, bronze, documents_in_silver, pipeline
from pymongo.database import Database
from pyspark.sql import SparkSession
from stream_reading import selection, shown

from strandline.jobs.capture.job import run_capture
from strandline.jobs.silver.job import run_silver
from strandline.source.change_stream import StreamReader
from strandline.source.client import AnyClient, find_collection, operation_time
from strandline.source.fields import FieldRewriter
from strandline.source.ranges import Range, ReadOptions, read_range
from strandline.source.resume import ResumePoint
from strandline.source.stages import Selection
from strandline.source.stream_opening import token_at

Db = Database[dict[str, Any]]
IMAGES = {"changeStreamPreAndPostImages": {"enabled": True}}
ALL_IMAGES = "change_streams_update_full_with_pre_image"
SALT = "a pinch of salt"
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
    people.create_index("ssn", partialFilterExpression={"ssn": {"$gt": "SECRET-14"}})
    people.create_index([("address.city", 1), ("contacts.phone", 1)], name="some")
    people.create_index("address.city")
    database.command("collMod", "people", validator={"ssn": {"$ne": "SECRET-15"}})
    people.drop_indexes()


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
    definitions = [bson.decode(row["envelope"]) for row in rows if row["op"] == "ddl" and row["collection"] == "people"]
    assert [event for event in definitions if "ssn" in str(event) or "phone" in str(event)] == []
    created = [event["operationDescription"] for event in definitions if event["operationType"] == "createIndexes"]
    assert [[index["name"] for index in each["indexes"]] for each in created] == [[], [], ["address.city_1"]]
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
