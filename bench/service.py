"""``strandline run`` as a service: idle cost, latency to bronze, silver and gold, memory, and the time to stop."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import psutil
import pyarrow as pa
from deltalake import DeltaTable
from prometheus_client.parser import text_string_to_metric_families

from bench.limits import Client
from bench.trickle import RATE, at_rate, share_within
from strandline.io.delta_log.table_folder import commit_name
from strandline.source.mongod import free_ports

_DATABASE: Final = "service"
_TABLES: Final = tuple(f"orders_{number}" for number in range(10))
_GOLD: Final = (
    "-- materialized: incremental\n-- keys: customer\n"
    "SELECT customer, count(*) AS orders FROM silver.orders_0 WHERE NOT _deleted GROUP BY customer"
)
_LOOKS: Final = 12
"""Number of times that memory is measured."""
_SETTLE_SECONDS: Final = 20
_PATIENCE_SECONDS: Final = 300


@dataclass(frozen=True)
class ServiceCost:
    """Cost of a service over ten tables.

    Args:
        idle_cores: CPU seconds per second while nothing changes, mongod left out.
        idle_commits: Commits of all tables in that time. Heartbeats are commits of bronze.
        busy_cores: CPU seconds per second, from the first insert until all documents are in silver.
        to_silver: Seconds from an insert to the commit of silver that has it, per document.
        to_gold_p95: 95 % of the batches were in gold within these seconds: upper bound of a bucket of the histogram.
        memory: Bytes (PSS) of all processes, seen at equal intervals while busy, oldest first.
        stop_seconds: From SIGTERM to exit.
    """

    idle_seconds: int
    busy_seconds: int
    idle_cores: float
    idle_commits: dict[str, int]
    to_silver: tuple[float, ...]
    to_gold_p95: float
    busy_cores: float
    memory: tuple[int, ...]
    stop_seconds: float

    def within(self, share: float) -> float:
        """Return the seconds within which *share* of the documents were in silver."""
        return share_within(self.to_silver, share)

    @property
    def median(self) -> float:
        return statistics.median(self.to_silver)


def measure(client: Client, uri: str, folder: Path, *, idle: int, busy: int) -> ServiceCost:
    """Start the service and warm it up. Let it be *idle* for some seconds, then insert 100 documents a second.

    Raises:
        RuntimeError: The service ended, or did not do its work within five minutes.
    """
    for name in _TABLES:
        client[_DATABASE][name].insert_one({"_id": -1, "customer": 0, "at": time.time()})
    service = Service(uri, folder / "service", _DATABASE, _TABLES, gold=_GOLD)
    try:
        service.wait_for(service.has_tables)
        _insert(client, seconds=idle, first=-2 * idle * RATE)  # the first runs of a JVM are slow
        service.wait_for(lambda: service.rows() >= idle * RATE)
        time.sleep(_SETTLE_SECONDS)
        commits, cpu = service.commits(), service.cpu_seconds()
        time.sleep(idle)
        idle_commits = {layer: count - commits.get(layer, 0) for layer, count in service.commits().items()}
        idle_cores = (service.cpu_seconds() - cpu) / idle
        cpu, before, began = service.cpu_seconds(), service.buckets(), time.perf_counter()
        memory = _insert(client, seconds=busy, first=0, seen=service.memory)
        service.wait_for(lambda: service.rows(least=0) >= busy * RATE)
        cores = (service.cpu_seconds() - cpu) / (time.perf_counter() - began)
        time.sleep(_SETTLE_SECONDS)
        gold, waits = _quantile(before, service.buckets(), 0.95), service.waits()
        return ServiceCost(idle, busy, idle_cores, idle_commits, waits, gold, cores, memory, service.stop())
    finally:
        service.process.kill()


def _insert(client: Client, *, seconds: int, first: int, seen: Callable[[], int] = lambda: 0) -> tuple[int, ...]:
    """Insert a hundred documents a second, in turn into each collection. Return what was *seen* at equal intervals."""
    count, found = seconds * RATE, list[int]()
    for number in at_rate(count):
        row = {"_id": first + number, "customer": number % 1_000, "at": time.time()}
        client[_DATABASE][_TABLES[number % len(_TABLES)]].insert_one(row)
        if (number + 1) * _LOOKS // count > number * _LOOKS // count:
            found.append(seen())
    return tuple(found)


class Service:
    """A process of ``strandline run`` over some collections of a database, with its lake in *folder*."""

    def __init__(
        self,
        uri: str,
        folder: Path,
        database: str,
        collections: Sequence[str],
        *,
        gold: str = "",
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Start the process.

        Args:
            gold: SQL of a gold table. Empty: no gold.
            settings: More environment variables.
        """
        self.lake, (self._port,), self._collections = folder / "lake", free_ports(1), collections
        sql = folder / "gold"
        sql.mkdir(parents=True)
        if gold:
            (sql / "customers.sql").write_text(gold, encoding="utf-8")
        own = {
            "STRANDLINE_SOURCE__URI": uri,
            "STRANDLINE_SOURCE__NAME": "bench",
            "STRANDLINE_CAPTURE__SCOPE": "database",
            "STRANDLINE_CAPTURE__TARGET": database,
            "STRANDLINE_GOLD__SQL_DIR": str(sql),
            "STRANDLINE_LAKE__ROOT": str(self.lake),
        }
        command = [sys.executable, "-m", "strandline.cli", "run", "--health-port", str(self._port)]
        self._said = folder / "log"
        self._cpu: dict[tuple[int, float], float] = {}
        """CPU seconds by process, with its start: a number is given again."""
        with self._said.open("wb") as out:
            self.process = subprocess.Popen(command, env=os.environ | own | settings, stdout=out, stderr=out)

    def wait_for(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not holds():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the service did not do its work:\n{self._said.read_text()}")
            time.sleep(1)

    def rows(self, *, least: int = -1_000_000) -> int:
        """Number of documents in silver whose ``_id`` is at least *least*."""
        found = 0
        for table in self.tables():
            if "_id" not in {one.name for one in table.schema().fields}:
                continue  # created, and not merged yet
            found += sum(one >= least for one in table.to_pyarrow_table(columns=["_id"])["_id"].to_pylist())
        return found

    def waits(self) -> tuple[float, ...]:
        """Seconds from each insert to the commit of silver: the time at which its file got its name."""
        found = []
        for table in self.tables():
            changes = table.load_cdf(columns=["_id", "at", "_change_type", "_commit_version"])
            for row in pa.table(changes).to_pylist():
                if row["_id"] >= 0 and row["_change_type"] == "insert":
                    found.append(committed_at(table, row["_commit_version"]) - row["at"])
        return tuple(found)

    def has_tables(self) -> bool:
        """True if each collection has a silver table."""
        return all((self.lake / "silver" / name / "_delta_log").is_dir() for name in self._collections)

    def tables(self) -> Sequence[DeltaTable]:
        return [DeltaTable(str(self.lake / "silver" / name)) for name in self._collections]

    def commits(self) -> dict[str, int]:
        """Number of commits by layer."""
        found: dict[str, int] = {}
        for log in self.lake.rglob("_delta_log"):
            layer = log.relative_to(self.lake).parts[0]
            found[layer] = found.get(layer, 0) + sum(1 for _ in log.glob("*.json"))
        return found

    def buckets(self) -> dict[float, float]:
        """The histogram of seconds from the source to gold."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics") as answer:
            families = text_string_to_metric_families(answer.read().decode())
            samples = (sample for family in families for sample in family.samples)
            return {
                float(sample.labels["le"]): sample.value
                for sample in samples
                if sample.name == "strandline_source_to_gold_seconds_bucket"
            }

    def _processes(self) -> list[psutil.Process]:
        main = psutil.Process(self.process.pid)
        return [main, *main.children(recursive=True)]

    def cpu_seconds(self) -> float:
        """CPU time of all processes. One that has ended counts as it was seen last."""
        for each in self._processes():
            with suppress(psutil.NoSuchProcess):
                self._cpu[each.pid, each.create_time()] = sum(each.cpu_times()[:2])
        return sum(self._cpu.values())

    def memory(self) -> int:
        """Bytes (PSS) of all processes. One that ends meanwhile has none."""
        total = 0
        for each in self._processes():
            with suppress(psutil.NoSuchProcess):
                total += each.memory_full_info().pss
        return total

    def stop(self) -> float:
        """Stop the service as a supervisor does. Return the seconds until it ended."""
        began = time.perf_counter()
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(120) != 0:
            raise RuntimeError(f"exit code {self.process.returncode}:\n{self._said.read_text()}")
        return time.perf_counter() - began


def committed_at(table: DeltaTable, version: int) -> float:
    """Return the time at which a commit's file got its name, in seconds since 1970."""
    folder = Path(table.table_uri.removeprefix("file://"))
    return (folder / commit_name(version)).stat().st_mtime


def _quantile(before: dict[float, float], after: dict[float, float], share: float) -> float:
    """Return the upper bound of the bucket in which *share* of the new observations is reached."""
    new = {bound: count - before.get(bound, 0) for bound, count in sorted(after.items())}
    wanted = share * max(new.values(), default=0)
    return next((bound for bound, count in new.items() if count >= wanted), float("inf"))
