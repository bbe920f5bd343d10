"""One lake while its MongoDB is upgraded, downgraded, or runs below its own feature compatibility version."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from lakehouse import settings_for
from mongod_versions import VERSIONS, Seen, Server, mongod, starts_all_versions
from pymongo import MongoClient
from pymongo.database import Database

from strandline.errors import ConfigurationError, StrandlineError
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.lake_context import DeltaRsContext, open_capture_without_spark
from strandline.model.query import Query
from strandline.model.table_schemas import bronze_table

pytestmark = starts_all_versions

Client = MongoClient[dict[str, Any]]


@contextmanager
def running(version: str, data: Path, port: int | None) -> Iterator[tuple[str, int, Client]]:
    """A server of this version on an existing data folder: its URI, port and client."""
    with mongod(version, data_dir=data, port=port) as server, Client(server.uri) as client:
        yield server.uri, server.ports[0], client


def set_feature_version(client: Client, version: str) -> None:
    """Set the feature compatibility version. 7.0 and newer ask for a confirmation, and older ones refuse it."""
    confirmation = {"confirm": True} if client.server_info()["versionArray"][0] >= 7 else {}
    client.admin.command({"setFeatureCompatibilityVersion": version, **confirmation})


def feature_version(client: Client) -> str:
    answer = client.admin.command({"getParameter": 1, "featureCompatibilityVersion": 1})
    return str(answer["featureCompatibilityVersion"]["version"])


def change(database: Database[dict[str, Any]], step: int) -> None:
    """Every kind of change, on documents of every earlier step."""
    database.a.insert_many([{"_id": f"{step}-{number}", "n": 0, "step": step} for number in range(20)])
    database.a.update_many({"_id": {"$regex": "-[0-9]$"}}, {"$inc": {"n": 1}, "$set": {f"by.{step}": True}})
    database.a.delete_many({"_id": {"$regex": "-1[0-4]$"}, "step": step - 1})
    database.b.insert_one({"_id": step})
    database.b.rename(f"b{step}")
    if step:
        database[f"b{step - 1}"].drop()


def test_upgrade_in_place(tmp_path: Path) -> None:
    """4.4, 5.0, 6.0.5, 6.0.27 below one lake. Changes also happen between the last capture and the upgrade."""
    port, seen_events = None, 0
    for step, version in enumerate(VERSIONS):
        with running(version, tmp_path / "data", port) as (uri, port, client):
            ctx = open_capture_without_spark(settings_for(uri, "shop", tmp_path / "lake"))
            assert ctx is not None
            for features in (False, True):
                if features:
                    set_feature_version(client, version[:3])
                change(client.shop, 2 * step + features)
                seen_events += run_capture(ctx, once=True).events
            _is_whole(ctx, client.shop, seen_events)
            change(client.shop, 100 + step)


def _is_whole(ctx: DeltaRsContext, shop: Database[dict[str, Any]], events: int) -> None:
    """Bronze holds one snapshot, each event once, one token per batch, and as many inserts as keys of the source."""
    bronze = bronze_table("test")
    streamed = ctx.tables.query(
        Query(bronze).select("position", "op", "key", "collection").where(("op", "in", ("c", "u", "d", "ddl")))
    )
    assert len({row["position"] for row in streamed}) == len(streamed) == events
    tokens = ctx.tables.query(Query(bronze).select("batch", "position").where(("resume_token", "is not null", None)))
    batches = sorted(row["batch"] for row in tokens)
    assert batches == list(range(1, len(batches) + 1))
    read = ctx.tables.query(Query(bronze).select("key", "collection").where(("op", "=", "r")))
    read = [row for row in read if row["collection"] == "a"]
    assert len(read) == 20, "the first version read a snapshot, and no later one did"
    gone = {row["key"] for row in streamed if (row["op"], row["collection"]) == ("d", "a")}
    known = {row["key"] for row in [*read, *streamed] if row["collection"] == "a" and row.get("op", "r") in "rc"}
    assert len(known - gone) == shop.a.count_documents({})


def test_downgrade_below_a_lake(tmp_path: Path) -> None:
    """5.0 becomes 4.4 again: the lake goes on. A mode that 4.4 lacks is refused, and nothing is written."""
    with running("4.4.2", tmp_path / "data", None) as (_, port, client):
        client.shop.a.insert_one({"_id": 0})
    with running("5.0.4", tmp_path / "data", port) as (uri, port, client):
        client.shop.a.insert_one({"_id": 1})
        ctx = open_capture_without_spark(settings_for(uri, "shop", tmp_path / "lake"))
        assert ctx is not None
        assert run_capture(ctx, once=True).documents == 2
        client.shop.a.insert_one({"_id": 2})
    with running("4.4.2", tmp_path / "data", port) as (uri, port, client):
        client.shop.a.insert_one({"_id": 3})
        before = ctx.tables.version(bronze_table("test"))
        changes = open_capture_without_spark(settings_for(uri, "shop", tmp_path / "lake", mode="change_streams"))
        assert changes is not None
        with pytest.raises(ConfigurationError, match=r"change_streams needs snapshot reads, which MongoDB 4\.4\.2"):
            run_capture(changes, once=True)
        assert ctx.tables.version(bronze_table("test")) == before
        assert run_capture(ctx, once=True).events == 2


@pytest.mark.parametrize(("before", "after"), [("5.0.4", "6.0.27"), ("6.0.27", "5.0.4")])
def test_another_version_below_a_running_capture(tmp_path: Path, before: str, after: str) -> None:
    """Capture goes on after an upgrade, and after a downgrade with other options of the stream."""
    stop, failures = threading.Event(), []
    with running(before, tmp_path / "data", None) as (uri, port, client):
        set_feature_version(client, "5.0")
        ctx = open_capture_without_spark(settings_for(uri, "shop", tmp_path / "lake"))
        assert ctx is not None
        client.shop.a.insert_one({"_id": 0})
        run_capture(ctx, once=True)
        capture = threading.Thread(target=lambda: failures.append(_failure(lambda: run_capture(ctx, stop=stop))))
        capture.start()
        client.shop.a.insert_one({"_id": 1})
        _wait_for_inserts(ctx, 1)
    with running(after, tmp_path / "data", port) as (_, port, client):
        client.shop.a.insert_one({"_id": 2})
        _wait_for_inserts(ctx, 2)
        client.shop.a.insert_one({"_id": 3})
        _wait_for_inserts(ctx, 3)
        stop.set()
        capture.join(60)
    assert failures == [None]


def _failure(call: Callable[[], object]) -> Exception | None:
    try:
        call()
    except StrandlineError as error:
        return error
    return None


def _wait_for_inserts(ctx: DeltaRsContext, count: int) -> None:
    deadline = time.monotonic() + 60
    query = Query(bronze_table("test")).select("position").where(("op", "=", "c"))
    while len(found := ctx.tables.query(query)) < count and time.monotonic() < deadline:
        time.sleep(0.2)
    assert len({row["position"] for row in found}) == len(found) == count


def test_features_below_the_server(server: Server, tmp_path: Path, seen: Seen) -> None:
    """The feature compatibility version of the release before."""
    feature = "A server with the feature compatibility version of the release before"
    older = {"4.4": "4.2", "5.0": "4.4", "6.0": "5.0"}[server.version[:3]]
    with mongod(server.version) as own, Client(own.uri) as client:
        set_feature_version(client, older)
        client.shop.a.insert_one({"_id": 1})
        plain = open_capture_without_spark(settings_for(own.uri, "shop", tmp_path / "plain"))
        assert plain is not None
        run_capture(plain, once=True)
        client.shop.a.update_one({"_id": 1}, {"$set": {"x": 1}})
        client.shop.a.drop()
        assert run_capture(plain, once=True).events == 2
        if server.is_older_than(6):
            seen.works(feature, server)
            return
        images = settings_for(own.uri, "shop", tmp_path / "images", mode="change_streams_with_pre_image")
        refusing = open_capture_without_spark(images)
        assert refusing is not None
        for _ in range(2):  # without a collection, and with one
            with pytest.raises(ConfigurationError, match="feature compatibility version is below") as refused:
                run_capture(refusing, once=True)
            assert not refusing.tables.exists(bronze_table("test"))
            client.shop.b.insert_one({})
        seen.otherwise(feature, server, f"Everything works but images, which are refused: {refused.value.message}")


def test_a_second_deployment_under_one_source_is_refused(server: Server, tmp_path: Path, seen: Seen) -> None:
    first = open_capture_without_spark(settings_for(server.uri, "t_owner", tmp_path))
    assert first is not None
    server.client.t_owner.a.insert_one({"_id": 1})
    run_capture(first, once=True)
    before = json.dumps(first.tables.properties(bronze_table("test")), sort_keys=True)
    with mongod(server.version) as other:
        second = open_capture_without_spark(settings_for(other.uri, "t_owner", tmp_path))
        assert second is not None
        with pytest.raises(ConfigurationError, match="another MongoDB deployment") as refused:
            run_capture(second, once=True)
    assert refused.value.next_step
    assert json.dumps(first.tables.properties(bronze_table("test")), sort_keys=True) == before
    server.client.drop_database("t_owner")
    seen.works("Another deployment under the same `source.name` is detected", server)
