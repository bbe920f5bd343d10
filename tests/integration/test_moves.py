"""Collections that the server moves to another UUID: events of 7.0 to 9.0, spliced into the stream of a real server."""

from __future__ import annotations

import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import bson
import pytest
from bson.binary import Binary
from lakehouse import assert_equal_to_source, bronze, documents_in_silver, pipeline
from mongos_stand_in import Answers, mongos_before
from pymongo.database import Database
from pyspark.sql import SparkSession

from strandline.control.notifications import unknown_operations
from strandline.errors import RetriableError
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.silver.run_silver import run_silver
from strandline.source.client import (
    Collection,
    ConnectionOptions,
    find_collection,
    find_incarnation,
    open_client,
    operation_time,
)
from strandline.source.ranges import Range, read_range

Db = Database[dict[str, Any]]
OLD, NEW = uuid.UUID(int=1), uuid.UUID(int=6)


def uuid_of(database: Db, name: str) -> uuid.UUID:
    (info,) = database.list_collections(filter={"name": name})
    found: uuid.UUID = info["info"]["uuid"].as_uuid()
    return found


def event(database: Db, kind: str, own: uuid.UUID, name: str = "a", **more: Any) -> dict[str, Any]:
    ns = {"db": database.name, "coll": name}
    return {"operationType": kind, "collectionUUID": Binary.from_uuid(own), "ns": ns, **more}


@pytest.mark.parametrize("shown", [("create", "drop"), ("create",)], ids=["E1 E2: up to 7.0", "E1: 8.0"])
def test_a_moved_collection_keeps_its_documents_until_it_is_dropped(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, shown: tuple[str, ...]
) -> None:
    answers = Answers(mongos=False, refused=())
    with mongos_before(mongo_uri, answers) as uri:
        ctx = pipeline(spark, uri, database.name, tmp_path)
        database.a.insert_many([{"_id": number} for number in range(3)])
        run_capture(ctx, once=True)
        run_silver(ctx)
        old = uuid_of(database, "a")
        answers.events.extend([event(database, kind, NEW if kind == "create" else old) for kind in shown])
        database.a.update_one({"_id": 0}, {"$set": {"v": 1}})
        run_capture(ctx, once=True)
        assert answers.events == []
        run_silver(ctx)
        assert_equal_to_source(ctx, database, "a")
        answers.events.append(event(database, "drop", NEW))  # E3
        database.a.insert_one({"_id": "of the next collection"})
        run_capture(ctx, once=True)
        run_silver(ctx)
        assert list(documents_in_silver(ctx, "a")) == ['"of the next collection"']


def test_an_update_after_a_move_is_folded_onto_the_row_from_before(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    """E4, without an event of the move: 8.3 and newer."""
    answers = Answers(mongos=False, refused=())
    with mongos_before(mongo_uri, answers) as uri:
        ctx = pipeline(spark, uri, database.name, tmp_path, mode="change_streams")
        database.a.insert_many([{"_id": number} for number in range(2)])
        run_capture(ctx, once=True)
        run_silver(ctx)
        patch = {"updatedFields": {"a": 9}, "removedFields": [], "truncatedArrays": [], "disambiguatedPaths": {}}
        answers.events.append(event(database, "update", NEW, documentKey={"_id": 1}, updateDescription=patch))
        database.a.update_one({"_id": 0}, {"$set": {"v": 1}})
        run_capture(ctx, once=True)
        run_silver(ctx)
        found = {key: bson.decode(document) for key, document in documents_in_silver(ctx, "a").items()}
        assert found == {"0": {"_id": 0, "v": 1}, "1": {"_id": 1, "a": 9}}


def test_another_uuid_under_the_planned_name_is_found_and_no_collection_is_none(mongo_uri: str, database: Db) -> None:
    """R6."""
    database.a.insert_one({"_id": 1})
    own = uuid_of(database, "a").hex
    with closing(open_client(ConnectionOptions(mongo_uri), raw=True)) as client:
        for planned in (own, OLD.hex, None):
            found = find_incarnation(client, Collection(database.name, "a", planned))
            assert found is not None
            assert found.uuid == own
        assert find_incarnation(client, Collection(database.name, "gone", OLD.hex)) is None


def test_a_chunk_whose_collection_moves_while_it_is_read_is_read_again(mongo_uri: str, database: Db) -> None:
    database.a.insert_many([{"_id": number} for number in range(10)])
    with closing(open_client(ConnectionOptions(mongo_uri), raw=True)) as client:
        planned = Collection(database.name, "a", uuid_of(database, "a").hex)
        reading = read_range(client, planned, Range(), operation_time(client))
        assert len(next(reading)) == 10
        database.a.drop()
        database.a.insert_one({"_id": 1})
        with pytest.raises(RetriableError, match="was dropped, renamed or moved while it was read"):
            next(reading)
        assert (now := find_incarnation(client, planned)) is not None
        assert [len(some) for some in read_range(client, now, Range(), operation_time(client))] == [1]


def test_neither_a_view_nor_a_time_series_is_found_as_a_collection(mongo_uri: str, database: Db) -> None:
    """R6."""
    database.create_collection("w", timeseries={"timeField": "at"})
    database.create_collection("v", viewOn="a", pipeline=[])
    with closing(open_client(ConnectionOptions(mongo_uri), raw=True)) as client:
        for name in ("w", "v"):
            assert find_collection(client[database.name], name) is None
            assert find_incarnation(client, Collection(database.name, name, OLD.hex)) is None


def test_an_event_of_an_unknown_type_is_stored_and_notified(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """E12."""
    answers = Answers(mongos=False, refused=())
    with mongos_before(mongo_uri, answers) as uri:
        ctx = pipeline(spark, uri, database.name, tmp_path, notification_enabled_channels=("table",))
        database.a.insert_one({"_id": 1})
        run_capture(ctx, once=True)
        answers.events.extend([event(database, "someFutureType", NEW, newField=[1])] * 2)
        database.a.insert_one({"_id": 2})
        run_capture(ctx, once=True)
    rows = bronze(ctx).where("operation_type = 'someFutureType'").collect()
    assert [(row["op"], bson.decode(bytes(row["envelope"]))["newField"]) for row in rows] == [("ddl", [1])] * 2
    assert caplog.text.count("someFutureType") == 1
    assert unknown_operations(ctx.tables, "test") == ["someFutureType"]
