"""Events that the server splits: no position depends on the mode for large events. They need MongoDB 6.0.9."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import bson
import pytest
from bson import json_util
from lakehouse import settings_for
from mongod_versions import Server
from pymongo.database import Database

from strandline.errors import ConfigurationError
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.lake_context import DeltaRsContext, open_capture_without_spark
from strandline.jobs.offsets.life_cycle import required_offset, set_desired_state
from strandline.jobs.offsets.move_offset import alter_offset
from strandline.jobs.offsets.show_offset import show_offset
from strandline.jobs.selection import selection_of
from strandline.jobs.source_connection import capture_oplog, connection_options
from strandline.model.query import Query
from strandline.model.table_schemas import bronze_table
from strandline.source.client import open_client
from strandline.source.deployment import inspect_deployment
from strandline.source.oplog import Oplog

Db = Database[dict[str, Any]]
_MIB = 1024 * 1024
_WITH_IMAGES = {"mode": "change_streams_update_full_with_pre_image", "full_update_type": "post_image"}


@pytest.fixture
def large(server: Server, database: Db) -> Db:
    """A database with a document of 9 MiB, so that an event with its images is split."""
    if server.is_older_than(6, 0, 9):
        pytest.skip("the server does not split events")
    database.create_collection("a", changeStreamPreAndPostImages={"enabled": True})
    database.a.insert_one({"_id": 1, "n": 0, "text": "a" * 9 * _MIB})
    return database


def context(server: Server, database: Db, root: Path, oversize: str, **capture: Any) -> DeltaRsContext:
    options = {**_WITH_IMAGES, "cursor_oversize_handling_mode": oversize, **capture}
    ctx = open_capture_without_spark(settings_for(server.uri, database.name, root, **options))
    assert ctx is not None
    return ctx


def events(ctx: DeltaRsContext) -> list[tuple[str, str]]:
    query = (
        Query(bronze_table("test")).select("op", "key", "position").where(("op", "in", ("c", "u", "oversize", "gap")))
    )
    return [(row["op"], row["key"]) for row in sorted(ctx.tables.query(query), key=lambda row: row["position"])]


def fragment_token(database: Db) -> str:
    """The token of the last fragment of the newest event."""
    images = {"full_document": "whenAvailable", "full_document_before_change": "whenAvailable"}
    stages = [{"$changeStreamSplitLargeEvent": {}}]
    began = database.client.admin.command("ping")["operationTime"]
    database.a.update_one({"_id": 1}, {"$inc": {"n": 1}})
    with database.watch(stages, start_at_operation_time=bson.Timestamp(began.time, began.inc + 1), **images) as stream:
        while (event := stream.next())["splitEvent"]["fragment"] < event["splitEvent"]["of"]:
            pass
    return json_util.dumps(event["_id"])


@pytest.mark.parametrize("later", ["skip", "fail", "split"])
@pytest.mark.parametrize("on_history_lost", ["fail", "heal"])
def test_a_position_after_a_split_event_holds_in_every_mode(
    server: Server, large: Db, tmp_path: Path, later: str, on_history_lost: str
) -> None:
    splitting = context(server, large, tmp_path, "split")
    run_capture(splitting, once=True)
    large.a.update_one({"_id": 1}, {"$inc": {"n": 1}})
    run_capture(splitting, once=True)
    after = context(server, large, tmp_path, later, on_history_lost=on_history_lost)
    for ctx in (splitting, after):
        shown = show_offset(ctx)
        assert (shown.warning, shown.age_seconds is None) == (None, False)
    with closing(open_client(connection_options(after.settings), raw=True)) as client:
        oplog = Oplog(client, selection_of(after.settings.capture), expanded_events=True)
        assert not oplog.is_fragment(required_offset(after).resume_token or "")
    large.a.insert_one({"_id": 2})
    run_capture(after, once=True)
    large.a.insert_one({"_id": 3})
    run_capture(splitting, once=True)
    assert events(after) == [("u", "1"), ("c", "2"), ("c", "3")]


def test_an_idle_stream_commits_no_token_of_a_fragment(server: Server, large: Db, tmp_path: Path) -> None:
    ctx = context(server, large, tmp_path, "split")
    run_capture(ctx, once=True)
    large.a.update_one({"_id": 1}, {"$inc": {"n": 1}})
    for _ in range(3):
        run_capture(ctx, once=True)
    query = Query(bronze_table("test")).select("resume_token").where(("resume_token", "is not null", None))
    with closing(open_client(connection_options(ctx.settings), raw=True)) as client:
        oplog = Oplog(client, selection_of(ctx.settings.capture), expanded_events=True)
        assert not [row for row in ctx.tables.query(query) if oplog.is_fragment(row["resume_token"])]


def test_a_split_event_in_a_transaction_is_followed_by_the_rest_of_it(
    server: Server, large: Db, tmp_path: Path
) -> None:
    ctx = context(server, large, tmp_path, "split", max_batch_size=1)
    run_capture(ctx, once=True)
    with large.client.start_session() as session, session.start_transaction():
        large.a.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
        large.a.insert_one({"_id": 2}, session=session)
        large.a.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
    run_capture(ctx, once=True)
    large.a.insert_one({"_id": 3})
    run_capture(context(server, large, tmp_path, "skip"), once=True)
    assert events(ctx) == [("u", "1"), ("c", "2"), ("u", "1"), ("c", "3")]


@pytest.mark.parametrize("before", ["skip", "no images"])
def test_the_position_of_an_event_that_was_not_split_holds_when_it_is_split(
    server: Server, large: Db, tmp_path: Path, before: str
) -> None:
    without = {"mode": "change_streams_update_full", "full_update_type": "lookup"} if before == "no images" else {}
    ctx = context(server, large, tmp_path, "skip", **without)
    run_capture(ctx, once=True)
    large.a.update_one({"_id": 1}, {"$inc": {"n": 1}})
    run_capture(ctx, once=True)
    splitting = context(server, large, tmp_path, "split", on_history_lost="heal")
    assert show_offset(splitting).warning is None
    large.a.insert_one({"_id": 2})
    run_capture(splitting, once=True)
    assert events(splitting) == [("oversize" if before == "skip" else "u", "1"), ("c", "2")]


def test_a_check_accepts_a_fragment_only_where_capture_does(server: Server, large: Db, tmp_path: Path) -> None:
    token = fragment_token(large)
    for mode, why in (("split", None), ("skip", "the source no longer has the history behind it")):
        capture = context(server, large, tmp_path, mode).settings.capture
        with closing(
            open_client(connection_options(settings_for(server.uri, large.name, tmp_path)), raw=True)
        ) as client:
            oplog = capture_oplog(client, selection_of(capture), capture, inspect_deployment(client))
            assert oplog.unusable_reason(token) == why
            assert oplog.is_fragment(token) is (mode == "split")


def test_an_offset_cannot_be_altered_to_a_fragment(server: Server, large: Db, tmp_path: Path) -> None:
    ctx = context(server, large, tmp_path, "split")
    run_capture(ctx, once=True)
    token = fragment_token(large)
    set_desired_state(ctx, "stopped", by="ops", why=None)
    with pytest.raises(ConfigurationError, match="is the token of a fragment of a large event"):
        alter_offset(ctx, token, by="ops", why=None)
    assert json.loads(required_offset(ctx).resume_token or "") != json.loads(token)


def test_an_offset_is_not_moved_back_over_a_change_of_the_tokens_format(
    server: Server, large: Db, tmp_path: Path
) -> None:
    """A stream that splits events gives tokens of the format of MongoDB 7.0."""
    plain = {"mode": "change_streams_update_full", "full_update_type": "lookup"}
    ctx, splitting = (context(server, large, tmp_path, oversize, **plain) for oversize in ("fail", "split"))
    run_capture(ctx, once=True)
    first = required_offset(ctx).resume_token or ""
    large.a.insert_one({"_id": 2})
    run_capture(ctx, once=True)
    large.a.insert_one({"_id": 3})
    run_capture(splitting, once=True)
    set_desired_state(ctx, "stopped", by="test", why=None)
    for each in (ctx, splitting):
        with pytest.raises(ConfigurationError, match=r"\d events after that position have tokens of another format"):
            alter_offset(each, first, by="test", why=None)
