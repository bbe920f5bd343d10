"""Oversize and undecodable events: each gets a dead letter, no other event is lost, silver equals the source."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bson
import pytest
from lakehouse import assert_equal_to_source, assert_streamed_exactly_once, bronze, pipeline, silver, without_utf8
from pymongo.database import Database
from pyspark.sql import SparkSession

from strandline.errors import ConfigurationError, ContractError
from strandline.jobs.capture.oversize_events import reread_event_document
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.operations.dead_letter_replay import replay
from strandline.jobs.operations.dead_letters import error_metrics, list_dead_letters, purge, show_dead_letter
from strandline.jobs.silver.run_silver import run_silver
from strandline.source.client import AnyClient, Collection, find_collection
from strandline.source.stages import Selection

Db = Database[dict[str, Any]]
IMAGE_FIELDS = "x" * (9 * 1024 * 1024)


# scenario: J02, J06, J07, J09, J10, P02, P05
@pytest.mark.long
def test_an_oversize_event_is_named_passed_and_its_document_read_again(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    database.create_collection("a", changeStreamPreAndPostImages={"enabled": True})
    database.a.insert_one({"_id": 1, "heavy": IMAGE_FIELDS})
    how: dict[str, Any] = {"mode": "change_streams_with_pre_image"}
    failing = pipeline(spark, mongo_uri, database.name, tmp_path, **how)
    run_capture(failing, once=True)
    database.a.insert_one({"_id": 2})
    database.a.update_one({"_id": 1}, {"$set": {"heavy": IMAGE_FIELDS[:-1]}})
    database.a.update_one({"_id": 1}, {"$inc": {"n": 1}})
    database.a.insert_one({"_id": 3})
    with pytest.raises(
        ConfigurationError, match=rf"the document with key #6b86b273ff34 of {database.name}\.a exceeds 16 MiB"
    ):
        run_capture(failing, once=True)
    assert [row["key"] for row in bronze(failing).where("op = 'c'").collect()] == ["2"]

    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, **how, cursor_oversize_handling_mode="skip")
    run_capture(ctx, once=True)
    ops = [
        (row["op"], row["key"])
        for row in bronze(ctx).where("batch is not null and key is not null").orderBy("position").collect()
    ]
    assert ops == [("c", "2"), ("oversize", "1"), ("u", "1"), ("c", "3")]
    database.a.update_one({"_id": 1}, {"$inc": {"n": 1}})  # a patch that stands on the document that was read again
    run_capture(ctx, once=True)
    assert_streamed_exactly_once(ctx)

    (letter,) = list_dead_letters(ctx)
    assert (letter["status"], letter["stage"], letter["class"], letter["key"], letter["attempts"]) == (
        "open",
        "read",
        "OversizeEvent",
        "1",
        2,
    )
    assert "xxx" not in json.dumps(show_dead_letter(ctx, letter["id"], values=True), default=str)
    assert [each.status for each in replay(ctx)] == ["replayed"]
    assert replay(ctx) == []
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "a")
    metrics = error_metrics(ctx)
    assert (
        metrics["total-records-skipped"],
        metrics["total-retries"],
        metrics["deadletterqueue-records-produced"],
    ) == (1, 1, 1)
    assert purge(ctx, before=datetime(2020, 1, 1, tzinfo=UTC)) == 0
    assert (purge(ctx), list_dead_letters(ctx)) == (1, [])
    with pytest.raises(ConfigurationError, match="no dead letter"):
        show_dead_letter(ctx, letter["id"])


def oversize_events(collection: Any, number: int) -> tuple[bytes, Collection]:
    """Return a stripped event of document *number*, and its collection."""
    found = find_collection(collection.database, collection.name)
    assert found is not None
    event = bson.encode({"operationType": "update", "documentKey": {"_id": number}})
    return event, Collection(found.db, found.name, found.uuid)


# scenario: J06
def test_a_document_of_a_capped_collection_is_read_again(raw_client: AnyClient, database: Db) -> None:
    capped = database.create_collection("a", capped=True, size=1024 * 1024)
    capped.insert_many([{"_id": 1, "n": 1}, {"_id": 2}])
    again = reread_event_document(raw_client, *oversize_events(capped, 1), Selection("database", database.name))
    assert again is not None
    assert bson.decode(again.document) == {"_id": 1, "n": 1}


# scenario: J06
def test_a_document_of_a_renamed_collection_is_read_again_under_the_new_name_unless_that_is_not_captured(
    raw_client: AnyClient, database: Db
) -> None:
    database.a.insert_one({"_id": 1})
    aside = oversize_events(database.a, 1)
    database.a.rename("b")
    database.a.insert_one({"_id": 1, "another": True})  # its namesake is another collection
    selection = Selection("database", database.name)
    again = reread_event_document(raw_client, *aside, selection)
    assert again is not None
    assert (again.collection.name, bson.decode(again.document)) == ("b", {"_id": 1})
    assert (
        reread_event_document(raw_client, *aside, replace(selection, excluded_collections=(rf"{database.name}\.b",)))
        is None
    )
    database.b.drop()  # looks like a move, so the document that the name has now is read; it is right for the name
    again = reread_event_document(raw_client, *aside, selection)
    assert again is not None
    assert (again.collection.name, bson.decode(again.document)) == ("a", {"_id": 1, "another": True})
    database.a.drop()
    assert reread_event_document(raw_client, *aside, selection) is None


def broken(document: dict[str, Any]) -> bson.raw_bson.RawBSONDocument:
    """Return *document* without UTF-8, and with a field ``a`` in the place of ``b``."""
    return bson.raw_bson.RawBSONDocument(without_utf8(document).raw.replace(b"\x10b\0", b"\x10a\0"))


# scenario: K02, K03, K05, K07, K08, K09, K10, J09, P08
@pytest.mark.check
def test_poison_lands_as_bytes_with_a_dead_letter_or_stops_a_strict_capture(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    strict = pipeline(spark, mongo_uri, database.name, tmp_path, errors_tolerance="none")
    assert (list_dead_letters(strict), error_metrics(strict)["total-record-failures"]) == ([], 0)
    database.a.insert_one({"_id": 0, "text": "before", "in": {"a": 1}})
    run_capture(strict, once=True)
    deep: dict[str, Any] = {}
    for _ in range(170):
        deep = {"d": deep}
    database.a.insert_one({"_id": 1})
    database.a.insert_one(broken({"_id": 2, "text": "XXXX"}))  # type: ignore[arg-type]  # why: raw documents go as they are
    database.a.insert_one(broken({"_id": 3, "in": {"a": 1, "b": 2}}))  # type: ignore[arg-type]  # why: as above
    database.a.insert_many(
        [{"_id": 4, "deep": deep}, {"_id": 5, "date": bson.DatetimeMS(2**62), "nul": "a\0b", "in": [1, "x", None]}]
    )
    database.a.insert_many([{"_id": 6, "largest": "x" * (16 * 1024 * 1024 - 50)}, {"_id": "k" * 1024 * 1024}])
    with pytest.raises(ContractError, match=r"the document with key #d4735e3a265e of .*\.a cannot be shown as JSON"):
        run_capture(strict, once=True)
    assert [row["key"] for row in bronze(strict).where("op = 'c'").collect()] == ["1"]

    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    run_capture(ctx, once=True)
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "a")
    assert_streamed_exactly_once(ctx)
    letters = {letter["key"]: letter["message"] for letter in list_dead_letters(ctx, status="open")}
    assert set(letters) == {"2", "3"}
    assert "UTF-8" in letters["2"]
    assert "twice" in letters["3"]
    database.a.update_one({"_id": 2}, {"$set": {"text": "mended"}})
    database.a.delete_one({"_id": 3})
    assert sorted(each.status for each in replay(ctx)) == ["gone", "replayed"]
    run_capture(ctx, once=True)
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "a")
    assert [row["text"] for row in silver(ctx, "a").where("_key = '2'").select("text").collect()] == ["mended"]
    assert list_dead_letters(ctx, status="open") == []
