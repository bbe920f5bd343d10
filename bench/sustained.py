"""The rate of changes that ``strandline run`` sustains: it is raised until silver's delay over ten tables is too long.

Of the changes 70 % are updates, 20 % inserts and 10 % deletes. mongod and the writers run on the same machine. Each
table has a writer of its own: a single one would wait for each answer of the server.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pymongo import DeleteOne, UpdateOne

from bench.limits import Client
from bench.service import Service, committed_at

Engine = Literal["auto", "spark"]
ENGINES: Final[tuple[Engine, ...]] = ("auto", "spark")

_TABLES: Final = tuple(f"orders_{number}" for number in range(10))
_AT_FIRST: Final = 100_000
"""Documents of each table at the start."""
_FIRST_RATE, _LAST_RATE = 1_000, 64_000
_TRIALS_BETWEEN: Final = 2
"""Rates that are tried between the highest one that is held and the lowest one that is not."""
_MOST_SECONDS: Final = 10.0
"""Maximum delay to silver at the 95th percentile."""
_LEAST_SHARE: Final = 0.95
"""Part of the rate that the writer must reach."""


@dataclass(frozen=True)
class Delays:
    """Delays to silver at one rate of changes.

    Args:
        seconds: Time for which changes were written.
        rate: Changes a second that were to be written.
        written: Changes a second that the writers reached.
        median, p95: Seconds from a write to the commit of silver that has it, for inserts and updates.
        memory: Peak bytes (PSS) of all processes of the service, seen once a second.
        cores: CPU seconds per second of the service, mongod and the writers left out.
    """

    engine: Engine
    seconds: int
    rate: int
    written: float
    median: float
    p95: float
    memory: int
    cores: float

    @property
    def are_short(self) -> bool:
        return self.p95 <= _MOST_SECONDS and self.written >= _LEAST_SHARE * self.rate


def compare(client: Client, uri: str, folder: Path, *, trial: int, seconds: int) -> Iterator[Delays]:
    """Yield, for each engine, the delays at each rate that was tried, and at the highest rate that was held.

    Args:
        trial: Seconds at each rate that is tried.
        seconds: Seconds at the rate that was found.

    Raises:
        RuntimeError: The service ended, or did not catch up within five minutes.
    """
    for engine in ENGINES:
        bench = _Bench(client, uri, folder / f"sustained-{engine}", engine)
        try:
            yield from bench.trials_and_long_run(trial, seconds)
        finally:
            bench.service.process.kill()


def _trials(measured: Callable[[int], Delays]) -> Iterator[Delays]:
    """Yield the delays at some rates: each is twice the last one, then some are between."""
    held, lost = 0, 2 * _LAST_RATE
    while (rate := 2 * held or _FIRST_RATE) < lost:
        yield (one := measured(rate))
        held, lost = (rate, lost) if one.are_short else (held, rate)
    for _ in range(_TRIALS_BETWEEN if lost <= _LAST_RATE else 0):
        yield (one := measured((held + lost) // 2))
        held, lost = (one.rate, lost) if one.are_short else (held, one.rate)


class _Bench:
    """A service of one engine, and the writers of changes in its source."""

    def __init__(self, client: Client, uri: str, folder: Path, engine: Engine) -> None:
        self._engine, self._database = engine, client[f"sustained_{engine}"]
        self._ids = {name: range(_AT_FIRST) for name in _TABLES}
        """Ids of the documents of each table: inserts add at the end, deletes take from the front."""
        for name in _TABLES:
            self._database[name].insert_many([_document(number) for number in self._ids[name]])
        settings = {"STRANDLINE_ENGINE": engine}
        self.service = Service(uri, folder, self._database.name, _TABLES, settings=settings)
        self.service.wait_for(self.service.has_tables)
        self.service.wait_for(self._is_caught_up)

    def trials_and_long_run(self, trial: int, seconds: int) -> Iterator[Delays]:
        """Yield the delays at each rate that is tried, and over some *seconds* at the highest one that is held."""
        self.delays(_FIRST_RATE, trial)  # the first runs of a JVM are slow
        tried = []
        for one in _trials(partial(self.delays, seconds=trial)):
            tried.append(one)
            yield one
        yield self.delays(max((one.rate for one in tried if one.are_short), default=tried[-1].rate), seconds)

    def delays(self, rate: int, seconds: int) -> Delays:
        """Write changes at *rate* for some *seconds*, wait until silver has them, and return their delays."""
        before = [table.version() for table in self.service.tables()]
        began, cpu, memory = time.time(), self.service.cpu_seconds(), 0
        with ThreadPoolExecutor(len(_TABLES)) as pool:
            writers = [
                pool.submit(self._write, name, rate // len(_TABLES), began + place / len(_TABLES), seconds)
                for place, name in enumerate(_TABLES)
            ]
            while not all(writer.done() for writer in writers):
                memory = max(memory, self.service.memory())
                time.sleep(1)
        took = max(max(writer.result() for writer in writers) - began, seconds)
        self.service.wait_for(self._is_caught_up)
        cores = (self.service.cpu_seconds() - cpu) / (time.time() - began)
        waits = np.concatenate([_waits(*one, began) for one in zip(self.service.tables(), before, strict=True)])
        median, p95 = np.quantile(waits, (0.5, 0.95)).tolist()
        return Delays(self._engine, seconds, rate, rate * seconds / took, median, p95, memory, cores)

    def _write(self, name: str, count: int, began: float, seconds: int) -> float:
        """Make *count* changes in a table each second, for some *seconds*. Return the time of the last answer."""
        chance = random.Random(name)
        for turn in range(seconds):
            time.sleep(max(0.0, began + turn - time.time()))
            self._change(name, count, chance)
        return time.time()

    def _change(self, name: str, count: int, chance: random.Random) -> None:
        """Make *count* changes in a table: updates of random documents, deletes of the oldest ones, then inserts."""
        ids, collection = self._ids[name], self._database[name]
        deleted, inserted = count // 10, count // 5
        left, new = ids[deleted:], range(ids.stop, ids.stop + inserted)
        changes: list[Any] = [DeleteOne({"_id": number}) for number in ids[:deleted]]
        chosen = chance.choices(left, k=count - deleted - inserted)
        changes += [UpdateOne({"_id": number}, {"$set": {"at": time.time()}}) for number in chosen]
        if changes:
            collection.bulk_write(changes, ordered=False)
        collection.insert_many([_document(number) for number in new], ordered=False)
        self._ids[name] = range(left.start, new.stop)

    def _is_caught_up(self) -> bool:
        """I/O: looks for the newest document of each table. Parquet's statistics skip other rows."""
        tables = zip(_TABLES, self.service.tables(), strict=True)
        return all(_holds(table, self._ids[name].stop - 1) for name, table in tables)


def _document(number: int) -> dict[str, Any]:
    """Return an order of about 150 bytes."""
    return {
        "_id": number,
        "customer": number % 1_000,
        "amount": number * 0.25,
        "note": f"{number:064x}",
        "at": time.time(),
    }


def _holds(table: DeltaTable, number: int) -> bool:
    if "_id" not in {one.name for one in table.schema().fields}:
        return False  # created, and not merged yet
    return bool(table.to_pyarrow_dataset().count_rows(filter=pc.field("_id") == number))


def _waits(table: DeltaTable, version: int, since: float) -> np.ndarray[Any, Any]:
    """Return the seconds from each insert and update after *since* to its commit, in versions above *version*."""
    if table.version() <= version:
        return np.empty(0)
    columns = ["at", "_deleted", "_change_type", "_commit_version"]
    changes = pa.table(table.load_cdf(starting_version=version + 1, columns=columns))
    is_new = pc.is_in(changes["_change_type"].cast(pa.string()), pa.array(["insert", "update_postimage"]))
    is_counted = pc.and_(pc.and_(is_new, pc.invert(changes["_deleted"])), pc.greater_equal(changes["at"], since))
    changes = changes.select(["at", "_commit_version"]).filter(is_counted)
    versions = changes["_commit_version"].to_numpy()
    times = {version: committed_at(table, version) for version in np.unique(versions).tolist()}
    return np.array([times[version] for version in versions.tolist()]) - changes["at"].to_numpy()
