"""Events and tokens of `EventStream` are those of the driver's change stream, for every scope."""

from __future__ import annotations

from typing import Any

import pytest
from pymongo.database import Database

from strandline.source.client import ConnectionOptions, open_client, token_json
from strandline.source.raw_reply import EventStream, read_replies
from strandline.source.resume import ResumePoint
from strandline.source.stages import Selection
from strandline.source.stream_opening import StreamLimits, open_stream, token_at

COUNT = 25


@pytest.mark.parametrize("batch_size", [3, 1000])
@pytest.mark.parametrize("scope", ["deployment", "database", "collection"])
def test_events_and_tokens_are_the_drivers(
    mongo_uri: str, database: Database[dict[str, Any]], scope: Any, batch_size: int
) -> None:
    database.create_collection("orders")
    with open_client(ConnectionOptions(mongo_uri), raw=True) as client:
        selection = Selection(
            scope, None if scope == "deployment" else database.name, "orders" if scope == "collection" else None
        )
        start = ResumePoint(token=token_at(client, selection, expanded_events=False))
        database.orders.insert_many({"_id": number, "text": "x" * 5000 * (number % 2)} for number in range(COUNT))
        limits = StreamLimits(max_batch_size=batch_size)
        with (
            open_stream(client, selection, start, limits, False) as usual,
            EventStream(open_stream(client, selection, start, limits, False, by_reply=True)) as stream,
        ):
            compared = 0
            while compared < COUNT:
                expected, event = usual.try_next(), stream.try_next()
                while expected is None:
                    expected = usual.try_next()
                while event is None:
                    event = stream.try_next()
                assert event == bytes(expected.raw)
                compared += 1
                if compared % batch_size and compared < COUNT:  # the server chooses the token at the end of a reply
                    assert token_json(stream.resume_token) == token_json(usual.resume_token)
                assert (stream.alive, usual.alive) == (True, True)


def test_an_invalidated_stream_ends_after_its_last_event(mongo_uri: str, database: Database[dict[str, Any]]) -> None:
    database.create_collection("orders")
    with open_client(ConnectionOptions(mongo_uri), raw=True) as client:
        selection = Selection("collection", database.name, "orders")
        start = ResumePoint(token=token_at(client, selection, expanded_events=False))
        database.orders.insert_one({"_id": 1})
        database.drop_collection("orders")
        events = []
        with EventStream(open_stream(client, selection, start, StreamLimits(), False, by_reply=True)) as stream:
            while stream.alive:
                event = stream.try_next()
                if event is not None:
                    events.append(event)
        assert len(events) == 3
        assert b"invalidate" in events[-1]


def test_documents_of_all_replies_are_read(mongo_uri: str, database: Database[dict[str, Any]]) -> None:
    database.orders.insert_many({"_id": number, "text": "x" * 5000 * (number % 2)} for number in range(COUNT))
    with open_client(ConnectionOptions(mongo_uri), raw=True) as client:
        raw = client[database.name]
        replies = list(read_replies(raw, {"find": "orders", "sort": {"_id": 1}, "batchSize": 10}))
        assert len(replies[0]) == 10
        assert [bytes(one.raw) for one in raw.orders.find(sort={"_id": 1})] == [one for some in replies for one in some]
        assert list(read_replies(raw, {"find": "nothing"})) == []
