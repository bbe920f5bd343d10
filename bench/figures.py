"""From a collection to typed tables: whole commands beside other tools that do the same job, in turn in one run."""

from __future__ import annotations

import shutil
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deltalake import DeltaTable

from bench.commands import CommandCost, measure, measure_process
from bench.limits import Client, insert
from bench.peers import COLLECTION, DATABASE

_BY_SPARK: Final = {"STRANDLINE_ENGINE": "spark"}
_SHARE_OF_DLT: Final = 10
"""dlt gets one of so many documents: it takes some 100 µs of CPU time for each."""


@dataclass(frozen=True)
class Figure:
    """Costs of one command in each round, and the number of documents that it read."""

    name: str
    documents: int
    rounds: tuple[CommandCost, ...]

    @property
    def seconds(self) -> float:
        """Median."""
        return statistics.median(one.seconds for one in self.rounds)

    @property
    def cpu_seconds(self) -> float:
        """Median."""
        return statistics.median(one.cpu_seconds for one in self.rounds)

    @property
    def memory(self) -> int:
        """Highest peak of all rounds, in bytes."""
        return max(one.memory for one in self.rounds)


@dataclass(frozen=True)
class _Round:
    """One round over all commands, in a folder that is empty at its start."""

    uri: str
    folder: Path
    documents: int
    peers: Path | None
    """Virtual environment with PyMongoArrow, delta-rs and dlt. None: they are left out."""

    def costs(self) -> Iterator[tuple[int, CommandCost]]:
        """Yield the documents that each command read, and its cost."""
        yield self.documents, self._tool("cursor", "a raw cursor, nothing decoded or written")
        yield self.documents, self._run("run --once", "auto", {})
        if self.peers is not None:
            yield self.documents, self._tool("pymongoarrow", "PyMongoArrow, schema given, and delta-rs")
        yield self.documents, self._run("run --once, engine: spark", "spark", _BY_SPARK)
        yield self.documents, self._tool("spark", "Spark by hand, schema given")
        if self.peers is not None:
            count = self.documents // _SHARE_OF_DLT
            yield count, self._tool("dlt", "dlt, nested values as JSON text", count)
        for cost in self._in_steps():
            yield self.documents, cost

    def _in_steps(self) -> Iterator[CommandCost]:
        """Yield the costs of commands of one lake, one after the other."""
        lake = self.folder / "steps"
        environment = self._environment(lake)
        for name in ("capture --once", "silver", "reconcile --typed"):
            yield measure(name, name.split(), environment)
        measure("stop", ["stop"], environment)  # a rebuild needs a source that is stopped
        yield measure("rebuild", ["rebuild", f"silver.{COLLECTION}"], environment)
        self._check(lake / "silver" / COLLECTION, self.documents)
        shutil.rmtree(lake)

    def _run(self, name: str, folder: str, settings: dict[str, str]) -> CommandCost:
        lake = self.folder / folder
        cost = measure(name, ["run", "--once"], self._environment(lake) | settings)
        self._check(lake / "silver" / COLLECTION, self.documents)
        shutil.rmtree(lake)
        return cost

    def _environment(self, lake: Path) -> dict[str, str]:
        return {
            "STRANDLINE_SOURCE__URI": self.uri,
            "STRANDLINE_SOURCE__NAME": "bench",
            "STRANDLINE_CAPTURE__SCOPE": "database",
            "STRANDLINE_CAPTURE__TARGET": DATABASE,
            "STRANDLINE_LAKE__ROOT": str(lake),
        }

    def _tool(self, tool: str, name: str, count: int | None = None) -> CommandCost:
        """Measure a program of `bench.peers`."""
        needs_peers, target, count = tool in ("pymongoarrow", "dlt"), self.folder / tool, count or self.documents
        python = str(self.peers / "bin" / "python") if needs_peers and self.peers else sys.executable
        cost = measure_process(name, [python, "-m", "bench.peers", tool, self.uri, str(target), str(count)], {})
        if tool != "cursor":
            self._check(target / "bench" / COLLECTION if tool == "dlt" else target, count)
            shutil.rmtree(target)
        return cost

    def _check(self, table: Path, count: int) -> None:
        found = DeltaTable(str(table)).to_pyarrow_dataset().count_rows()
        if found != count:
            raise RuntimeError(f"{table} has {found} rows, not {count}: the measurement is invalid")


def compare(
    client: Client, uri: str, folder: Path, *, documents: int, rounds: int, peers: Path | None, seed: int
) -> list[Figure]:
    """Insert a collection, then run every command in each of some *rounds*.

    Raises:
        RuntimeError: A command failed, or did not write every document.
    """
    insert(client, DATABASE, documents, seed=seed)
    each: Sequence[list[tuple[int, CommandCost]]] = [
        list(_Round(uri, folder / f"figures-{number}", documents, peers).costs()) for number in range(rounds)
    ]
    return [
        Figure(costs[0][1].name, costs[0][0], tuple(cost for _, cost in costs)) for costs in zip(*each, strict=True)
    ]
