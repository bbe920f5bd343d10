"""Live replay of real flights: the writes of an airline system. Deterministic for a seed."""

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

from strandline.demo.dataset import Document, Flight, FlightDataset

Operation = tuple[str, InsertOne[Document] | UpdateOne | ReplaceOne[Document] | DeleteOne]
"""Collection, and the write operation on it."""

_INITIAL_BATCH = 1000
_FAST_BATCH = 100
_SLOW_BATCH, _SLOW_RATE = 10, 20  # operations, and operations per second, before the capture starts
_FAST_RATE = 2000  # operations per second during the capture, so changes arrive while the snapshot runs
_TRANSACTION_EVERY = 5  # batches
_CHANGED_FLIGHT_INTERVAL = 40  # on average, one flight in this many is replaced, and one is deleted and inserted again
_REFERENCE_CHANGE_INTERVAL = 10  # operations between two changes of reference data, each collection in turn


def load_reference(database: Database[Document], dataset: FlightDataset, history: Sequence[Flight]) -> None:
    """Insert the reference data, and the flights of *history* in their final state.

    I/O: writes five collections of *database*. Not idempotent.
    """
    for name in ("airlines", "airports", "planes", "weather"):
        database[name].insert_many(getattr(dataset, name), ordered=False)
    if history:
        database.flights.insert_many([completed(flight) for flight in history], ordered=False)


def completed(flight: Flight) -> Document:
    """Return the final document of a flight: after all its updates, or with status cancelled."""
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


def operations(dataset: FlightDataset, flights: Sequence[Flight], seed: int) -> list[Operation]:
    """Return all write operations in order of time: insert, departure, arrival, cancellation, and rare special cases.

    Special cases: a flight is replaced, or deleted and inserted again under the same `_id`. Pure.
    """
    rng = random.Random(seed)
    timed = [
        (at, number, operation)
        for number, flight in enumerate(flights)
        for at, operation in _flight_operations(flight, rng)
    ]
    timed.sort(key=lambda item: item[:2])
    written: list[Operation] = []
    for number, (_, _, operation) in enumerate(timed):
        written.append(operation)
        if number % _REFERENCE_CHANGE_INTERVAL == 0:
            written.append(_reference_change(dataset, number, rng))
    return written


def _flight_operations(flight: Flight, rng: random.Random) -> Iterator[tuple[Any, Operation]]:
    scheduled, key = flight.document["scheduled"]["departure"], {"_id": flight.identifier}
    published = scheduled - timedelta(hours=6)
    yield published, ("flights", InsertOne(flight.document))
    if rng.randrange(_CHANGED_FLIGHT_INTERVAL) == 0:  # delete, then insert under the same `_id`
        yield published + timedelta(hours=1), ("flights", DeleteOne(key))
        yield published + timedelta(hours=2), ("flights", InsertOne(flight.document))
    if rng.randrange(_CHANGED_FLIGHT_INTERVAL) == 0:  # replacement of the whole document
        yield published + timedelta(hours=3), ("flights", ReplaceOne(key, flight.document | {"equipment_change": True}))
    if flight.departed is None:
        yield scheduled, ("flights", DeleteOne(key))
        return
    departed = max(flight.departed, published + timedelta(hours=4))
    yield departed, ("flights", UpdateOne(key, _departure(flight)))
    if flight.arrived is not None:
        yield max(flight.arrived, departed), ("flights", UpdateOne(key, _arrival(flight)))


def _reference_change(dataset: FlightDataset, number: int, rng: random.Random) -> Operation:
    """Return a small update of a reference collection."""
    name = ("planes", "airports", "weather", "airlines")[number // _REFERENCE_CHANGE_INTERVAL % 4]
    document = rng.choice(getattr(dataset, name))
    change: Document = {"$set": {"inspected": number}} if name == "planes" else {"$inc": {"revision": 1}}
    return name, UpdateOne({"_id": document["_id"]}, change)


class Replay:
    """Writer of all operations in a background thread.

    The first half is written at full speed, and then `half_done` is set. The third quarter is written slowly, until
    `reader_started` is called. The rest is written at a fixed rate. So a capture that starts at `half_done` reads
    changes before, between and after the chunks of its snapshot. Every fifth batch is a transaction over several
    collections.
    """

    def __init__(self, client: MongoClient[Document], database: str, written: Sequence[Operation]) -> None:
        self._client, self._database, self._written = client, client[database], written
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="strandline-replay", daemon=True)
        self._reader_present = threading.Event()
        self._batches = self.written_count = 0
        self.half_done = threading.Event()

    @property
    def total(self) -> int:
        return len(self._written)

    def start(self) -> None:
        self._thread.start()

    def reader_started(self) -> None:
        """Report that the capture reads, so the rest is written at the fast rate. Idempotent."""
        self._reader_present.set()

    def join(self) -> None:
        """Write the rest and wait for its end. Raises the error of the thread, if any."""
        self.reader_started()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while self.written_count < self.total // 2:
                self._advance(min(_INITIAL_BATCH, self.total // 2 - self.written_count))
            self.half_done.set()
            while self.written_count < self.total * 3 // 4 and not self._reader_present.wait(_SLOW_BATCH / _SLOW_RATE):
                self._advance(_SLOW_BATCH)
            self._reader_present.wait()
            while self.written_count < self.total:
                self._advance(_FAST_BATCH)
                time.sleep(_FAST_BATCH / _FAST_RATE)
        except BaseException as error:  # noqa: BLE001  # why: `join` raises it in the calling thread
            self._error = error
        finally:
            self.half_done.set()

    def _advance(self, operations: int) -> None:
        batch = self._written[self.written_count : self.written_count + operations]
        self._batches += 1
        if self._batches % _TRANSACTION_EVERY == 0:
            with self._client.start_session() as session:
                session.with_transaction(lambda session: self._write(batch, session))
        else:
            self._write(batch)
        self.written_count += len(batch)

    def _write(self, batch: Sequence[Operation], session: ClientSession | None = None) -> None:
        """Write *batch*, in order within each collection. One request per collection, as each waits for the journal."""
        requests: dict[str, list[Any]] = {}
        for collection, operation in batch:
            requests.setdefault(collection, []).append(operation)
        for collection, operations in requests.items():
            self._database[collection].bulk_write(operations, session=session)
