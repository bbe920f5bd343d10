"""Queries of the oplog: does it reach back to a position, and how many events lie between two positions?"""

from __future__ import annotations

from typing import Any

import pytest
from pymongo import MongoClient
from stream_reading import Db, failing, needs_failpoints

from strandline.errors import ConfigurationError, ResumePointLost
from strandline.model.user_pipeline import UserPipeline, parse_user_pipeline
from strandline.source.client import AnyClient, token_data
from strandline.source.oplog import Oplog
from strandline.source.resume import ResumePoint
from strandline.source.stages import Images, Selection
from strandline.source.stream_opening import token_at

pytestmark = needs_failpoints


def test_an_unreadable_stream_without_a_token_is_blamed_on_the_stage(raw_client: AnyClient, database: Db) -> None:
    stages, problems = parse_user_pipeline('[{"$match": {"$jsonSchema": {"foo": 1}}}]')
    assert problems == []
    staged = Oplog(
        raw_client, Selection("database", database.name, user_pipeline=UserPipeline(stages)), expanded_events=False
    )
    with pytest.raises(
        ConfigurationError, match="code 9"
    ) as refused:  # what every start asks first, with a position and without
        staged.present_token_data()
    assert "cursor_pipeline" in refused.value.next_step
    plain, garbled = Selection("database", database.name), ResumePoint(token='{"_data": "zz"}')
    with pytest.raises(ResumePointLost, match="code 9"):
        token_at(raw_client, plain, garbled)
    assert not Oplog(raw_client, plain, expanded_events=False).can_start_at(garbled)


# scenario: G05
def test_a_token_that_is_cut_off_anywhere_is_one_that_the_server_cannot_read(
    raw_client: AnyClient, database: Db
) -> None:
    with database.a.watch() as stream:
        database.a.insert_one({"_id": {"a": "text"}})
        data = next(stream)["_id"]["_data"]
    oplog = Oplog(raw_client, Selection("database", database.name), expanded_events=False)

    def can_start(length: int) -> bool:
        start = ResumePoint(token=f'{{"_data": "{data[:length]}"}}')
        return all(oplog.can_start_at(start) for _ in range(3))  # a busy machine may not answer within the second

    whole = [length for length in range(len(data) + 1) if can_start(length)]
    assert whole == [len(data) - 2, len(data)], "the last byte, two digits, only ends it"


# scenario: P04
@pytest.mark.parametrize("code", [286, 136])
def test_a_position_that_falls_off_while_the_server_looks_is_not_reached(
    raw_client: AnyClient, mongo: MongoClient[Any], database: Db, code: int
) -> None:
    oplog = Oplog(raw_client, Selection("database", database.name), expanded_events=False)
    start = ResumePoint(cluster_time=oplog.present_time())
    assert oplog.can_start_at(start)
    with failing(mongo, "aggregate", "alwaysOn", errorCode=code):
        assert not oplog.can_start_at(start)
    with (
        failing(mongo, "aggregate", "alwaysOn", errorCode=13),
        pytest.raises(ConfigurationError, match="a privilege is missing"),
    ):
        oplog.can_start_at(start)


# scenario: J02, O03
def test_events_are_counted_past_one_that_the_server_cannot_send_and_not_where_the_history_is_lost(
    raw_client: AnyClient, mongo: MongoClient[Any], database: Db
) -> None:
    database.create_collection("a", changeStreamPreAndPostImages={"enabled": True})
    heavy = "x" * (9 * 1024 * 1024)
    database.a.insert_one({"_id": 1, "heavy": heavy})
    oplog = Oplog(
        raw_client,
        Selection("database", database.name, images=Images("updateLookup", "whenAvailable")),
        expanded_events=False,
    )
    before = oplog.token_at(ResumePoint(cluster_time=oplog.present_time()))  # right before the insert
    database.a.update_one({"_id": 1}, {"$set": {"heavy": heavy[:-1]}})
    seconds, increment = oplog.present_time()
    through = token_data(oplog.token_at(ResumePoint(cluster_time=(seconds, increment + 1))))
    database.a.insert_one({"_id": 2})
    assert oplog.count(before, through, 100) == 2
    assert oplog.can_start_at(ResumePoint(cluster_time=(seconds, increment))), (
        "the next event is the one that is too large"
    )
    with failing(mongo, "aggregate", errorCode=286):
        assert oplog.count(before, through, 100) is None
