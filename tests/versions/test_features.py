"""Every feature that depends on the server's version, on each version: it works, is done otherwise, or is refused.

What the tests saw becomes docs/versions.md.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bson
import pytest
from lakehouse import settings_for
from mongod_versions import Seen, Server
from pymongo.database import Database

from strandline.errors import ConfigurationError
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.lake_context import DeltaRsContext, open_capture_without_spark
from strandline.model.query import Query
from strandline.model.table_schemas import bronze_table

Db = Database[dict[str, Any]]
_MIB = 1024 * 1024
_OPS = ("r", "c", "u", "d", "ddl", "oversize")


def native(server: Server, database: Db, root: Path, **capture: Any) -> DeltaRsContext:
    ctx = open_capture_without_spark(settings_for(server.uri, database.name, root, **capture))
    assert ctx is not None
    return ctx


def rows(ctx: DeltaRsContext, *columns: str) -> list[dict[str, Any]]:
    """Rows of bronze that hold an event or a document, in the order of the stream."""
    query = Query(bronze_table("test")).select("position", "op", *columns).where(("op", "in", _OPS))
    return sorted(ctx.tables.query(query), key=lambda row: row["position"])


def refusal(ctx: DeltaRsContext) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as refused:
        run_capture(ctx, once=True)
    assert not ctx.tables.exists(bronze_table("test")), "nothing was written"
    return refused.value


def test_snapshot_stream_and_restart(server: Server, database: Db, tmp_path: Path, seen: Seen) -> None:
    ctx = native(server, database, tmp_path, snapshot_chunk_size=100)
    database.a.insert_many([{"_id": number, "x": 0} for number in range(1000)])
    first = run_capture(ctx, once=True)
    assert first.documents == 1000
    for number in range(5):
        database.a.update_one({"_id": number}, {"$set": {"x": 1}})
        assert run_capture(ctx, once=True).events == 1
    database.a.delete_one({"_id": 0})
    assert run_capture(ctx, once=True).events == 1
    assert run_capture(ctx, once=True).events == 0
    found = rows(ctx)
    assert [sum(row["op"] == op for row in found) for op in "rud"] == [1000, 5, 1]
    streamed = [row["position"] for row in found if row["op"] != "r"]
    assert len(set(streamed)) == len(streamed)
    seen.works("Snapshot, stream and restart of capture", server)


def test_the_moment_of_a_snapshot(server: Server, database: Db, tmp_path: Path, seen: Seen) -> None:
    ctx = native(server, database, tmp_path)
    database.a.insert_one({"_id": 1})
    run_capture(ctx, once=True)
    (read,) = rows(ctx, "operation_type")
    if server.is_older_than(5):
        assert read["operation_type"] == "read_capped"
        how = "A document may be newer than the position of its row. The column `_inexact_because` then holds `capped`."
        seen.otherwise("Snapshot: all documents of a chunk are from one cluster time", server, how)
    else:
        assert read["operation_type"] == "read"
        seen.works("Snapshot: all documents of a chunk are from one cluster time", server)


def test_updates_without_their_documents(server: Server, database: Db, tmp_path: Path, seen: Seen) -> None:
    feature = "`mode: change_streams`: updates come without the document"
    ctx = native(server, database, tmp_path, mode="change_streams")
    database.a.insert_one({"_id": 1, "x": 1})
    if server.is_older_than(5):
        seen.refused(feature, server, refusal(ctx))
        return
    run_capture(ctx, once=True)
    database.a.update_one({"_id": 1}, {"$set": {"x": 2}})
    assert run_capture(ctx, once=True).events == 1
    assert "fullDocument" not in bson.decode(rows(ctx, "envelope")[-1]["envelope"])
    seen.works(feature, server)


def test_incarnations(server: Server, database: Db, tmp_path: Path, seen: Seen) -> None:
    ctx = native(server, database, tmp_path)
    database.a.insert_one({"_id": 1})
    run_capture(ctx, once=True)
    database.a.drop()
    database.a.insert_one({"_id": 2})
    database.a.rename("b")
    database.b.insert_one({"_id": 3})
    run_capture(ctx, once=True)
    found = rows(ctx, "operation_type", "collection_uuid", "collection")
    streamed = [row for row in found if row["op"] != "r"]
    read_again = [row for row in found if (row["op"], row["collection"]) == ("r", "b")]
    told = [row["operation_type"] for row in streamed if row["operation_type"] != "create"]
    assert told == ["drop", "insert", "rename", "insert"]
    uuids = {row["collection_uuid"] for row in streamed}
    if server.is_older_than(6):
        assert uuids == {None}
        assert read_again
        how = "Events have no UUID. After a rename a snapshot reads the collection again."
        seen.otherwise("A renamed collection is recognised by its UUID", server, how)
    else:
        assert None not in uuids
        assert not read_again
        assert len(uuids) == 2
        seen.works("A renamed collection is recognised by its UUID", server)


def test_a_stream_of_one_collection_goes_on(server: Server, database: Db, tmp_path: Path, seen: Seen) -> None:
    """A drop and a rename invalidate the stream."""
    ctx = native(server, database, tmp_path)
    one = settings_for(server.uri, f"{database.name}.a", tmp_path, scope="collection")
    ctx = DeltaRsContext(one, ctx.tables)
    database.a.insert_one({"_id": 1})
    run_capture(ctx, once=True)
    database.a.drop()
    database.a.insert_one({"_id": 2})
    run_capture(ctx, once=True)
    database.a.rename("b")
    database.a.insert_one({"_id": 3})
    run_capture(ctx, once=True)
    streamed = [row["operation_type"] for row in rows(ctx, "operation_type") if row["op"] != "r"]
    told = [operation for operation in streamed if operation != "create"]
    assert told == ["drop", "invalidate", "insert", "rename", "invalidate", "insert"]
    seen.works("`scope: collection`: capture continues after a drop or rename of the collection", server)


def test_images(server: Server, database: Db, tmp_path: Path, seen: Seen) -> None:
    feature = "`mode`s with pre- and post-images"
    ctx = native(server, database, tmp_path, mode="change_streams_update_full_with_pre_image")
    if server.is_older_than(6):
        database.create_collection("a")
        seen.refused(feature, server, refusal(ctx))
        return
    database.create_collection("a", changeStreamPreAndPostImages={"enabled": True})
    run_capture(ctx, once=True)
    database.a.insert_one({"_id": 1, "x": 1})
    database.a.update_one({"_id": 1}, {"$set": {"x": 2}})
    database.a.delete_one({"_id": 1})
    run_capture(ctx, once=True)
    events = [bson.decode(row["envelope"]) for row in rows(ctx, "envelope") if row["op"] in "ud"]
    assert [event["fullDocumentBeforeChange"]["x"] for event in events] == [1, 2]
    seen.works(feature, server)


def _oversize_update(server: Server, database: Db) -> None:
    """Update a document of 10 MiB, so that its event holds two of its kind and the update itself."""
    images = {} if server.is_older_than(6) else {"changeStreamPreAndPostImages": {"enabled": True}}
    database.create_collection("a", **images)
    database.a.insert_one({"_id": 1, "text": "a" * 10 * _MIB})


def test_split(server: Server, database: Db, tmp_path: Path, seen: Seen) -> None:
    feature = "`cursor_oversize_handling_mode: split`, for events above 16 MiB"
    mode = "change_streams_update_full" if server.is_older_than(6) else "change_streams_update_full_with_pre_image"
    ctx = native(server, database, tmp_path, mode=mode, cursor_oversize_handling_mode="split")
    _oversize_update(server, database)
    if server.is_older_than(6, 0, 9):
        seen.refused(feature, server, refusal(ctx))
        return
    run_capture(ctx, once=True)
    database.a.update_one({"_id": 1}, {"$set": {"text": "b" * 10 * _MIB}})
    database.a.insert_one({"_id": 2})
    run_capture(ctx, once=True)
    database.a.insert_one({"_id": 3})
    run_capture(ctx, once=True)
    update, *later = [bson.decode(row["envelope"]) for row in rows(ctx, "envelope") if row["op"] in "cu"]
    assert "splitEvent" not in update
    assert update["fullDocument"]["text"] == update["updateDescription"]["updatedFields"]["text"] == "b" * 10 * _MIB
    assert update["fullDocumentBeforeChange"]["text"] == "a" * 10 * _MIB
    assert [event["documentKey"]["_id"] for event in later] == [2, 3]
    seen.works(feature, server)


def test_skip(server: Server, database: Db, tmp_path: Path, seen: Seen) -> None:
    ctx = native(server, database, tmp_path, cursor_oversize_handling_mode="skip")
    _oversize_update(server, database)
    run_capture(ctx, once=True)
    database.a.update_one({"_id": 1}, {"$set": {"text": "b" * 10 * _MIB}})
    database.a.insert_one({"_id": 2})
    run_capture(ctx, once=True)
    found = [(row["op"], row["key"]) for row in rows(ctx, "key")]
    assert sorted(found) == [("c", "2"), ("oversize", "1"), ("r", "1"), ("r", "1")]
    seen.works("`cursor_oversize_handling_mode: skip`, for events above 16 MiB", server)


def test_excluded_fields(server: Server, database: Db, tmp_path: Path, seen: Seen) -> None:
    ctx = native(server, database, tmp_path, field_exclude_list=(rf"{database.name}.a.secret",))
    database.a.insert_one({"_id": 1, "secret": "s1", "b": 1})
    run_capture(ctx, once=True)
    database.a.insert_one({"_id": 2, "secret": "s2", "b": 2})
    database.a.update_one({"_id": 1}, {"$set": {"secret": "s3", "b": 3}})
    run_capture(ctx, once=True)
    held = [bson.decode(row["envelope"]) for row in rows(ctx, "envelope")]
    assert "secret" not in repr(held)
    assert len(held) >= 3
    if server.is_older_than(6):
        seen.otherwise(
            "`field_exclude_list`: the server does not send the fields",
            server,
            "The server sends them, and capture removes them before it writes.",
        )
    else:
        seen.works("`field_exclude_list`: the server does not send the fields", server)


def test_transactions(server: Server, database: Db, tmp_path: Path, seen: Seen) -> None:
    ctx = native(server, database, tmp_path)
    for name in "ab":
        database.create_collection(name)
    run_capture(ctx, once=True)
    with server.client.start_session() as session, session.start_transaction():
        for number in range(50):
            database.a.insert_one({"_id": number}, session=session)
            database.b.insert_one({"_id": number}, session=session)
    assert run_capture(ctx, once=True).events == 100
    found = [row for row in rows(ctx, "cluster_time") if row["op"] == "c"]
    assert len({row["cluster_time"] for row in found}) == 1
    assert len({row["position"] for row in found}) == 100
    seen.works("Events of a transaction", server)


def test_views_and_time_series_are_no_collections(server: Server, database: Db, tmp_path: Path, seen: Seen) -> None:
    database.a.insert_one({"_id": 1})
    database.create_collection("v", viewOn="a", pipeline=[])
    if not server.is_older_than(5):
        database.create_collection("w", timeseries={"timeField": "at"})
        database.w.insert_one({"at": datetime.now(UTC)})
    ctx = native(server, database, tmp_path)
    assert run_capture(ctx, once=True).documents == 1
    for name in ("w", "v", "a"):
        database[name].drop()
    run_capture(ctx, once=True)
    assert {row["collection"] for row in rows(ctx, "collection") if row["op"] != "ddl"} == {"a"}
    seen.works("Views and time series are left out", server)
