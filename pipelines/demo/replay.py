"""A live replay of real flights: what an airline's systems write while they fly. Deterministic by seed."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from pymongo import DeleteOne, InsertOne, MongoClient, ReplaceOne, UpdateOne
from pymongo.client_session import ClientSession
from pymongo.database import Database

from pipelines.demo.dataset import Dataset, Document, Flight

Operation = tuple[str, InsertOne[Document] | UpdateOne | ReplaceOne[Document] | DeleteOne]
"""Which collection, and what to write there."""

_BATCH = 1000
_LIVE_BATCH = 100
_TRICKLE, _TRICKLE_PACE = 10, 20  # operations, and operations per second, while nobody reads
_PACE = 2000  # operations per second once somebody does: the rest lasts while the snapshot is read
_TRANSACTION_EVERY = 5  # batches
_ONE_IN = 40  # so often a flight is replaced or booked again
_REFERENCE_ONE_IN = 10  # operations: so often something of the reference data changes, each collection in turn


def load_reference(database: Database[Document], dataset: Dataset, history: Sequence[Flight]) -> None:
    """I/O: inserts the reference data, and *history* as flights that are over: a cancelled one stands there as cancelled."""
    for name in ("airlines", "airports", "planes", "weather"):
        database[name].insert_many(getattr(dataset, name), ordered=False)
    if history:
        database.flights.insert_many([completed(flight) for flight in history], ordered=False)


def completed(flight: Flight) -> Document:
    """The document of a flight as all its updates leave it."""
    document: Document = flight.document | {"events": []}
    if flight.departed is None:
        return document | {"status": "cancelled"}
    for change in (_departure(flight), _arrival(flight)):
        for path, value in change.get("$set", {}).items():
            outer, _, inner = path.partition(".")
            document[outer] = {**document.get(outer, {}), inner: value} if inner else value
        document["events"] = [*document["events"], *([change["$push"]["events"]] if change else [])]
    return document


def _departure(flight: Flight) -> Document:
    if flight.departed is None:
        return {}
    changes = {"status": "departed", "actual.departure": flight.departed, "delay.departure": flight.departure_delay}
    return {"$set": changes, "$push": {"events": {"type": "departed", "at": flight.departed}}}


def _arrival(flight: Flight) -> Document:
    if flight.arrived is None:
        return {}
    changes: Document = {"status": "arrived", "actual.arrival": flight.arrived, "delay.arrival": flight.arrival_delay}
    if flight.air_time is not None:
        changes["actual.air_time"] = flight.air_time
    return {"$set": changes, "$push": {"events": {"type": "arrived", "at": flight.arrived}}}


def operations(dataset: Dataset, flights: Sequence[Flight], seed: int) -> list[Operation]:
    """Everything that will be written, in the order of the real day: schedule, departure, arrival, cancellation, and some accidents."""
    chance = random.Random(seed)
    timed = [
        (at, number, operation) for number, flight in enumerate(flights) for at, operation in _life(flight, chance)
    ]
    timed.sort(key=lambda item: item[:2])
    written: list[Operation] = []
    for number, (_, _, operation) in enumerate(timed):
        written.append(operation)
        if number % _REFERENCE_ONE_IN == 0:
            written.append(_reference_change(dataset, number, chance))
    return written


def _life(flight: Flight, chance: random.Random) -> Iterator[tuple[Any, Operation]]:
    scheduled, key = flight.document["scheduled"]["departure"], {"_id": flight.identifier}
    published = scheduled - timedelta(hours=6)
    yield published, ("flights", InsertOne(flight.document))
    if chance.randrange(_ONE_IN) == 0:  # taken out of the plan and booked again under the same key
        yield published + timedelta(hours=1), ("flights", DeleteOne(key))
        yield published + timedelta(hours=2), ("flights", InsertOne(flight.document))
    if chance.randrange(_ONE_IN) == 0:  # another aircraft: the whole document is written anew
        yield published + timedelta(hours=3), ("flights", ReplaceOne(key, flight.document | {"equipment_change": True}))
    if flight.departed is None:
        yield scheduled, ("flights", DeleteOne(key))
        return
    departed = max(flight.departed, published + timedelta(hours=4))
    yield departed, ("flights", UpdateOne(key, _departure(flight)))
    if flight.arrived is not None:
        yield max(flight.arrived, departed), ("flights", UpdateOne(key, _arrival(flight)))


def _reference_change(dataset: Dataset, number: int, chance: random.Random) -> Operation:
    """A small change of a collection that hardly ever changes."""
    name = ("planes", "airports", "weather", "airlines")[number // _REFERENCE_ONE_IN % 4]
    document = chance.choice(getattr(dataset, name))
    change: Document = {"$set": {"inspected": number}} if name == "planes" else {"$inc": {"revision": 1}}
    return name, UpdateOne({"_id": document["_id"]}, change)


class Replay:
    """Writes *written* in a thread: half of it at once; then a little now and then, until `hurry` says that somebody reads; then the rest
    at a pace. So a capture that begins at `half` meets changes before, between and after the chunks of its snapshot.

    Some batches are transactions over several collections, as an application's are.
    """

    def __init__(self, client: MongoClient[Document], database: str, written: Sequence[Operation]) -> None:
        self._client, self._database, self._written = client, client[database], written
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="strandline-replay", daemon=True)
        self._hurried = threading.Event()
        self._batches = self.done = 0
        self.half = threading.Event()

    @property
    def total(self) -> int:
        return len(self._written)

    def start(self) -> None:
        self._thread.start()

    def hurry(self) -> None:
        """Somebody is reading: go on with the rest. Idempotent."""
        self._hurried.set()

    def join(self) -> None:
        """Wait for the end. Raises what the thread failed with."""
        self.hurry()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while self.done < self.total // 2:
                self._advance(min(_BATCH, self.total // 2 - self.done))
            self.half.set()
            while self.done < self.total * 3 // 4 and not self._hurried.wait(_TRICKLE / _TRICKLE_PACE):
                self._advance(_TRICKLE)
            self._hurried.wait()
            while self.done < self.total:
                self._advance(_LIVE_BATCH)
                time.sleep(_LIVE_BATCH / _PACE)
        except BaseException as error:  # noqa: BLE001  # why: `join` raises it in the caller's thread
            self._error = error
        finally:
            self.half.set()

    def _advance(self, operations: int) -> None:
        batch = self._written[self.done : self.done + operations]
        self._batches += 1
        if self._batches % _TRANSACTION_EVERY == 0:
            with self._client.start_session() as session:
                session.with_transaction(lambda session: self._write(batch, session))
        else:
            self._write(batch)
        self.done += len(batch)

    def _write(self, batch: Sequence[Operation], session: ClientSession | None = None) -> None:
        """In order within each collection; one request for each, because every request waits for the journal."""
        requests: dict[str, list[Any]] = {}
        for collection, operation in batch:
            requests.setdefault(collection, []).append(operation)
        for collection, operations in requests.items():
            self._database[collection].bulk_write(operations, session=session)
