"""Rejection of collections in which an `_id` may exist on several shards, by shard key and by document key."""

from __future__ import annotations

from typing import Any

import bson
import pytest

from strandline.errors import ConfigurationError
from strandline.jobs.source_connection import stream_limits
from strandline.settings.capture import CaptureSettings
from strandline.source.sharding import ShardKeys, check_document_key, check_shard_keys


def event(operation: str, **fields: Any) -> bytes:
    return bson.encode(
        {"_id": {"_data": "82"}, "operationType": operation, "ns": {"db": "shop", "coll": "orders"}, **fields}
    )


@pytest.mark.parametrize("keys", [{}, {"shop.orders": ["_id"]}, {"shop.orders": ["_id"], "shop.items": ["_id"]}])
def test_a_shard_key_that_is_the_id_keeps_ids_unique(keys: ShardKeys) -> None:
    check_shard_keys(keys)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"shop.orders": ["region"]},
            "an _id of shop.orders may exist on several shards: the collection has the shard key region",
        ),
        ({"shop.orders": ["region", "_id"]}, "the shard key region, _id"),
        ({"shop.orders": ["_id", "region"]}, "the shard key _id, region"),
        ({"shop.orders": None}, "a shard key that this user may not read in config.collections"),
        ({"shop.b": ["x"], "shop.a": ["y"], "shop.c": ["_id"]}, r"of shop.a \(and of 1 more collections\) may"),
    ],
)
def test_any_other_shard_key_is_refused(keys: ShardKeys, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as refused:
        check_shard_keys(keys)
    assert "capture.sharded_ids_are_unique" in refused.value.next_step


@pytest.mark.parametrize(
    "raw",
    [
        event("insert", documentKey={"_id": 1}, fullDocument={"_id": 1, "region": "eu"}),
        event("delete", documentKey={"_id": {"region": "eu"}}),
        event("drop"),
        event("shardCollection", operationDescription={"shardKey": {"_id": "hashed"}}),
    ],
)
def test_an_event_whose_document_key_is_the_id_passes_unchanged(raw: bytes) -> None:
    assert check_document_key(raw) == raw


@pytest.mark.parametrize("operation", ["insert", "update", "replace", "delete"])
def test_a_document_key_with_another_shard_key_stops_the_capture(operation: str) -> None:
    raw = event(operation, documentKey={"region": "eu", "_id": 1})
    with pytest.raises(
        ConfigurationError, match=r"an _id of shop\.orders may exist on several shards: its shard key holds region"
    ) as refused:
        check_document_key(raw)
    assert "\n" not in str(refused.value)
    assert "eu" not in str(refused.value)


@pytest.mark.parametrize(
    ("sharded", "setting", "expected"),
    [(False, False, True), (True, False, False), (True, True, True), (False, True, True)],
)
def test_document_keys_are_checked_on_a_sharded_cluster_unless_a_setting_says_that_ids_are_unique(
    sharded: bool, setting: bool, expected: bool
) -> None:
    assert stream_limits(CaptureSettings(sharded_ids_are_unique=setting), sharded=sharded).unique_ids is expected
