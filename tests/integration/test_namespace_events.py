"""Events about collections themselves: each is one ``ddl`` row, and no invalidate event ends the capture."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from lakehouse import settings_for
from pymongo import MongoClient
from pymongo.database import Database

from strandline.bronze.envelope import Batch, BatchEnd, Stamp, stream_table
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.lake_context import open_capture_without_spark
from strandline.source.change_stream import StreamReader
from strandline.source.client import ConnectionOptions, open_client
from strandline.source.resume import ResumePoint
from strandline.source.stages import Selection, stream_stages
from strandline.source.stream_opening import StreamLimits, token_at

Db = Database[dict[str, Any]]
Row = dict[str, Any]


def landed(
    uri: str,
    selection: Selection,
    change: Callable[[], object],
    *,
    until: int,
    restarting: bool = False,
    twice: bool = False,
) -> list[Row]:
    """Bronze rows of what *change* does, in the order of the stream, until there are *until* of them.

    Args:
        restarting: A new reader for every event, from the token of the one before.
        twice: A second look, a moment later, must add nothing.
    """
    rows: list[Row] = []
    deadline = time.monotonic() + 60
    with closing(open_client(ConnectionOptions(uri), raw=True)) as client:
        point = ResumePoint(token=token_at(client, selection))
        change()
        limits = StreamLimits(max_batch_size=1 if restarting else 50_000)
        while len(rows) < until and time.monotonic() < deadline:
            with closing(StreamReader(client, selection, point, limits=limits).batches()) as batches:
                for batch in batches:
                    if batch.events:
                        table = stream_table(Batch(1, batch.events, BatchEnd(None, None), Stamp("s", "w", 0)))
                        rows += table.to_pylist()
                    point = ResumePoint(token=batch.resume_token)
                    if len(rows) >= until or time.monotonic() > deadline or (restarting and batch.events):
                        break
    assert not twice or landed_again(uri, selection, point) == []
    positions = [row["position"] for row in rows]
    assert positions == sorted(set(positions))
    assert all(row["envelope"] for row in rows)
    return rows


def landed_again(uri: str, selection: Selection, point: ResumePoint) -> list[bytes]:
    events: list[bytes] = []
    with (
        closing(open_client(ConnectionOptions(uri), raw=True)) as client,
        closing(StreamReader(client, selection, point).batches()) as batches,
    ):
        for _ in range(3):
            events += next(batches).events
    return events


def words(rows: list[Row]) -> list[str]:
    assert all((row["op"] == "ddl") == (row["operation_type"] not in ("insert", "update", "delete")) for row in rows)
    return [" ".join(filter(None, (row["operation_type"], row["collection"]))) for row in rows]


# scenario: H03, H10
def test_every_namespace_event_is_a_row(mongo_uri: str, database: Db) -> None:
    def change() -> None:
        database.a.insert_one({"_id": 1})
        database.a.create_index("v")
        database.command("collMod", "a", index={"keyPattern": {"v": 1}, "hidden": True})
        database.a.drop_index("v_1")
        database.a.drop()
        database.a.insert_one({"_id": 2})
        database.a.rename("b")
        database.a.insert_one({"_id": 3})
        database.a.rename("b", dropTarget=True)
        database.b.aggregate([{"$out": "b"}])

    rows = landed(mongo_uri, Selection("database", database.name), change, until=15)
    out = next(row["collection"] for row in rows if row["collection"].startswith("tmp.agg_out."))
    assert words(rows) == [
        *("create a", "insert a", "createIndexes a", "modify a", "dropIndexes a", "drop a"),
        *("create a", "insert a", "rename a"),
        *("create a", "insert a", "rename a"),
        *(f"create {out}", f"insert {out}", f"rename {out}"),
    ]
    lives = [row["collection_uuid"] for row in rows]
    assert None not in lives
    assert [
        len(set(lives[:6])),
        len(set(lives[6:9])),
        len(set(lives[9:12])),
        len(set(lives[12:])),
        len(set(lives)),
    ] == [1, 1, 1, 1, 4]


# scenario: H01, H06
@pytest.mark.parametrize("restarting", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_collection_stream_goes_on_after_every_invalidate(mongo_uri: str, database: Db, restarting: bool) -> None:
    def change() -> None:
        database.a.insert_one({"_id": 1})
        database.a.drop()
        database.a.insert_one({"_id": 2})
        database.a.rename("b")
        database.a.insert_one({"_id": 3})
        database.b.rename("a", dropTarget=True)
        database.a.insert_one({"_id": 4})
        database.b.insert_one({"_id": "not captured"})
        database.b.aggregate([{"$out": "a"}])
        database.a.insert_one({"_id": 5})

    selection = Selection(
        "collection", database.name, "a", skipped_operations=("update",)
    )  # a $match on data changes is there
    assert "$match" in stream_stages(selection)[0]
    rows = landed(mongo_uri, selection, change, until=16, restarting=restarting, twice=True)
    told = [word.split()[0] for word in words(rows) if not word.startswith("create")]
    assert told == [
        *("insert", "drop", "invalidate", "insert", "rename", "invalidate", "insert", "rename", "invalidate"),
        *("insert", "rename", "invalidate", "insert"),
    ]


# scenario: H09
@pytest.mark.parametrize("restarting", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_database_that_is_dropped_and_lives_again(
    mongo_uri: str, mongo: MongoClient[dict[str, Any]], database: Db, restarting: bool
) -> None:
    def change() -> None:
        database.a.insert_one({"_id": 1})
        database.b.insert_one({"_id": 1})
        mongo.drop_database(database.name)
        database.a.insert_one({"_id": 2})

    rows = landed(mongo_uri, Selection("database", database.name), change, until=10, restarting=restarting, twice=True)
    told = words(rows)
    assert told[:4] == ["create a", "insert a", "create b", "insert b"]
    assert sorted(told[4:6]) == ["drop a", "drop b"]
    assert told[6:] == ["dropDatabase", "invalidate", "create a", "insert a"]


def test_a_run_once_ends_after_the_snapshot_of_what_no_event_showed(
    mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    """The rename into the captured collections is the last event, and the snapshot has ten chunks."""
    excluded = {"collection_exclude_list": [rf"{database.name}\.hidden"]}
    settings = settings_for(mongo_uri, database.name, tmp_path, snapshot_chunk_size=50, **excluded)
    ctx = open_capture_without_spark(settings)
    assert ctx is not None
    database.hidden.insert_many([{"_id": number} for number in range(500)])
    assert run_capture(ctx, once=True).documents == 0
    database.hidden.rename("shown")
    assert run_capture(ctx, once=True).documents == 500
