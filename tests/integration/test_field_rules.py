"""Fields that are left out, masked, hashed or renamed: no byte of the lake holds what a rule hides."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import bson
import pytest
from lakehouse import assert_streamed_exactly_once, bronze, documents_in_silver, pipeline
from pymongo import MongoClient
from pymongo.database import Database
from pyspark.sql import Row, SparkSession
from stream_reading import selection, shown

from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.silver.run_silver import run_silver
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


@dataclass
class HiddenFields:
    """A lake under `RULES`, after a snapshot and every shape of change."""

    ctx: JobContext
    rows: list[Row]
    """Rows of bronze, in the order of their positions."""

    def updates(self, collection: str) -> list[dict[str, Any]]:
        events = [bson.decode(row["envelope"]) for row in self.rows if row["operation_type"] == "update"]
        return [event for event in events if event["ns"]["coll"] == collection]


@pytest.fixture(scope="module")
def hidden(
    spark: SparkSession, mongo: MongoClient[dict[str, Any]], mongo_uri: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HiddenFields]:
    database = mongo[f"t_{uuid.uuid4().hex[:12]}"]
    database.create_collection("people", **IMAGES)
    database.create_collection("other", **IMAGES)
    database.people.insert_one(PERSON)
    database.other.insert_one({"_id": 1, "ssn": "kept", "contacts": [{"phone": "kept"}]})
    ctx = pipeline(
        spark,
        mongo_uri,
        database.name,
        tmp_path_factory.mktemp("hidden"),
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
    yield HiddenFields(ctx, sorted(bronze(ctx).collect(), key=lambda row: row["position"] or ""))
    mongo.drop_database(database.name)


# scenario: M04, S10
def test_a_hidden_field_reaches_no_byte_of_bronze(hidden: HiddenFields) -> None:
    texts = [str(row.asDict(recursive=True)) for row in hidden.rows]
    assert [text for text in texts if "SECRET" in text] == []
    assert [row for row in hidden.rows if b"SECRET" in bytes(row["envelope"] or b"")] == []
    assert_streamed_exactly_once(hidden.ctx)


# scenario: M04
def test_a_read_document_lacks_excluded_fields_and_has_hashed_masked_and_renamed_ones(hidden: HiddenFields) -> None:
    reads = [row for row in hidden.rows if (row["op"], row["collection"]) == ("r", "people")]
    assert bson.decode(reads[0]["envelope"]) == {
        "_id": 1,
        "mail": sha256(f"{SALT}SECRET-mail".encode()).hexdigest(),
        "name": {"first": "****", "titles": ["****"]},
        "contacts": [{"kind": "home"}, {}],
        "nested": [[{"n": 1}]],
        "address": {"postcode": "1000", "city": "Bern"},
    }


# scenario: M04
def test_an_index_or_a_validator_of_a_hidden_field_is_left_out(hidden: HiddenFields) -> None:
    ddl = [row for row in hidden.rows if (row["op"], row["collection"]) == ("ddl", "people")]
    definitions = [bson.decode(row["envelope"]) for row in ddl]
    assert [event for event in definitions if "ssn" in str(event) or "phone" in str(event)] == []
    created = [event["operationDescription"] for event in definitions if event["operationType"] == "createIndexes"]
    names = [[index["name"] for index in description["indexes"]] for description in created]
    assert names == [[], [], ["address.city_1"]]


# scenario: M04, M06, B04
def test_an_update_has_hidden_fields_in_no_part_and_both_values_of_a_rename(hidden: HiddenFields) -> None:
    people = hidden.updates("people")
    updates = [event["updateDescription"] for event in people]
    assert updates[0]["updatedFields"] == {"address.postcode": "2000", "contacts.1.kind": "work"}
    assert updates[1]["updatedFields"]["contacts.2"] == {"kind": "new"}
    assert updates[2]["updatedFields"] == {"contacts": [{"kind": "only"}], "nested": [[{"n": 2}]]}
    assert updates[3]["removedFields"] == ["address.postcode"]
    assert people[4]["fullDocument"]["address"] == {"old": "x", "city": "y", "postcode": "3000"}
    assert all(event["fullDocumentBeforeChange"].keys() >= {"_id", "contacts"} for event in people)


def test_a_collection_without_rules_keeps_the_fields_that_are_hidden_elsewhere(hidden: HiddenFields) -> None:
    contacts = [event["fullDocument"]["contacts"] for event in hidden.updates("other")]
    assert contacts == [[{"phone": "kept too"}]]


# scenario: M04
def test_silver_has_the_documents_without_hidden_fields(hidden: HiddenFields) -> None:
    live = [bson.decode(document) for document in documents_in_silver(hidden.ctx, "people").values()]
    contacts = {person["_id"]: person["contacts"] for person in live}
    assert contacts == {1: [{"kind": "only"}], 2: [{"kind": "again"}]}


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
