"""Live replay of the demo on a real server: the final documents, and the events in its change stream."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from bson.codec_options import CodecOptions
from pymongo import MongoClient
from pymongo.database import Database

from strandline.demo.dataset import Document, Flight, FlightDataset, load_dataset
from strandline.demo.replay import Operation, Replay, completed, load_reference, operations

_COLLECTIONS = ("airlines", "airports", "planes", "weather", "flights")
_EVENT_TYPES = {"InsertOne": "insert", "UpdateOne": "update", "ReplaceOne": "replace", "DeleteOne": "delete"}


@dataclass(frozen=True)
class Replayed:
    """Planned writes, the final database, and all events of its change stream."""

    dataset: FlightDataset
    live: Sequence[Flight]
    written: Sequence[Operation]
    database: Database[Document]
    events: Sequence[Mapping[str, Any]]


@pytest.fixture(scope="module")
def replayed(mongo: MongoClient[Document]) -> Iterator[Replayed]:
    dataset = load_dataset(1000)  # all of New Year's Day, with its four cancelled flights, and some of the next morning
    history, live = dataset.flights[:400], dataset.flights[400:]
    written = operations(dataset, live, seed=11)
    name = f"t_{uuid.uuid4().hex[:12]}"
    database = mongo.get_database(name, codec_options=CodecOptions(tz_aware=True))
    load_reference(database, dataset, history)
    with database.watch(max_await_time_ms=500) as stream:
        replay = Replay(mongo, name, written)
        replay.start()
        replay.join()
        events: list[Mapping[str, Any]] = []
        empty = (
            0  # polls; a busy server may need some before it shows all, and one more shows that there is nothing else
        )
        while empty == 0 or (len(events) < len(written) and empty < 60):
            event = stream.try_next()
            events += [event] if event is not None else []
            empty += event is None
    yield Replayed(dataset, live, written, database, events)
    mongo.drop_database(name)


def test_the_source_ends_as_the_days_were_flown(replayed: Replayed) -> None:
    assert set(replayed.database.list_collection_names()) == set(_COLLECTIONS)
    flown = {item.identifier: completed(item) for item in replayed.dataset.flights}
    cancelled_live = {item.identifier for item in replayed.live if item.departed is None}
    held = {document["_id"]: document for document in replayed.database.flights.find()}
    assert cancelled_live
    assert held.keys() == flown.keys() - cancelled_live
    for document in held.values():
        document.pop("equipment_change", None)
    assert held == {key: flown[key] for key in held}


def test_delays_are_those_of_the_files(replayed: Replayed) -> None:
    held = {document["_id"]: document for document in replayed.database.flights.find()}
    for item in replayed.live:
        if item.departed is None:
            continue
        document = held[item.identifier]
        delays = {"departure": item.departure_delay, "arrival": item.arrival_delay}
        assert document["delay"] == {name: delay for name, delay in delays.items() if delay is not None}
        for name, minutes in document["delay"].items():
            assert (document["actual"][name] - document["scheduled"][name]).total_seconds() == minutes * 60
        assert document["status"] == ("departed" if item.arrival_delay is None else "arrived")


def test_every_write_is_one_change_in_every_collection(replayed: Replayed) -> None:
    made = Counter((collection, _EVENT_TYPES[type(operation).__name__]) for collection, operation in replayed.written)
    assert Counter((event["ns"]["coll"], event["operationType"]) for event in replayed.events) == made
    assert {collection for collection, _ in made} == set(_COLLECTIONS)
    assert {kind for collection, kind in made if collection == "flights"} == {"insert", "update", "replace", "delete"}


def test_changes_are_of_the_kinds_that_are_hard_to_land(replayed: Replayed) -> None:
    updates = [
        event["updateDescription"]["updatedFields"] for event in replayed.events if event["operationType"] == "update"
    ]
    paths = {path for update in updates for path in update}
    assert any(path.startswith("actual") for path in paths), "nested fields"
    assert any(path.startswith("events.") for path in paths), "array elements"
    assert any("txnNumber" in event for event in replayed.events), "transactions"
    lives: dict[Any, list[str]] = {}
    for event in replayed.events:
        if event["ns"]["coll"] == "flights" and event["operationType"] in ("insert", "delete"):
            lives.setdefault(event["documentKey"]["_id"], []).append(event["operationType"])
    assert ["insert", "delete", "insert"] in lives.values(), "booked again under the same key"
    assert ["insert", "delete"] in lives.values(), "cancelled"
