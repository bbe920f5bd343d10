"""Measurement of one run: documents, bytes, seconds, steady-state rate and peak memory."""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from strandline.settings.configuration import Settings

_SAMPLE_SECONDS = 0.1
_EXACT_EVERY = 10
"""Samples between two exact readings.

For shared memory the kernel walks all pages of the processes. In every sample, that took 10 % of both cores.
"""
_GROWN = 1.05
"""Factor of resident memory growth that triggers an exact reading at once."""


@dataclass
class Marks:
    """Recorder of commits. Called after each commit with its number of documents; thread-safe."""

    started: float = field(default_factory=time.perf_counter)
    landings: list[tuple[float, int]] = field(default_factory=list)

    def __call__(self, _what: str, count: int) -> None:
        if count:
            self.landings.append((time.perf_counter() - self.started, count))

    def steady(self, lanes: int) -> float | None:
        """Return documents per second in steady state: from the first commits of all *lanes* to the last commit.

        None: too few commits.
        """
        begun, counted = self.landings[:lanes], self.landings[lanes:]
        if len(counted) < lanes:
            return None
        return sum(count for _, count in counted) / (counted[-1][0] - begun[-1][0])


@dataclass(frozen=True)
class Peak:
    """Peak memory in bytes: this process and its Python children, the JVM, and both together at one moment.

    Memory shared between processes counts once.
    """

    python: int
    jvm: int
    both: int


@dataclass(frozen=True)
class Measurement:
    """Result of one run. *size*: bytes of BSON from the server. *stored*: bytes on disk; None: nothing was stored."""

    name: str
    documents: int
    size: int
    seconds: float
    steady: float | None = None
    stored: int | None = None
    peak: Peak | None = None

    @property
    def rate(self) -> float:
        """Documents per second, from the call to its return."""
        return self.documents / self.seconds


class MemoryWatch:
    """Sampler of the memory of this process and its child processes while the block runs.

    Left out: mongod, and idle Python workers that Spark kept from an earlier run. A peak shorter than a second may be
    reported too low.
    """

    def __init__(self) -> None:
        self._peaks = {"python": 0, "java": 0, "both": 0}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def peak(self) -> Peak:
        return Peak(self._peaks["python"], self._peaks["java"], self._peaks["both"])

    def _run(self) -> None:
        this = psutil.Process()
        before: dict[int, tuple[float, float]] = {}
        for child in this.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                before[child.pid] = child.cpu_times()[:2]
        highest = {"python": 0, "java": 0}
        for sample in itertools.count():
            if self._stop.wait(_SAMPLE_SECONDS):
                return
            resident = _in_use(this, before, _resident)
            if sample % _EXACT_EVERY and all(resident[kind] <= _GROWN * highest[kind] for kind in highest):
                continue
            highest = {kind: max(highest[kind], resident[kind]) for kind in highest}
            exact = _in_use(this, before, _proportional)
            for kind, size in (*exact.items(), ("both", sum(exact.values()))):
                self._peaks[kind] = max(self._peaks[kind], size)


def _in_use(
    this: psutil.Process, before: Mapping[int, tuple[float, float]], memory: Callable[[psutil.Process], int]
) -> dict[str, int]:
    """Return the bytes of *this* process and its children, by kind, as measured by *memory*.

    Children without CPU time since *before* are left out.
    """
    found = {"python": memory(this), "java": 0}
    for child in this.children(recursive=True):
        try:
            name, size = Path(child.exe()).name, memory(child)
            is_left_over = child.cpu_times()[:2] == before.get(child.pid)
        except psutil.NoSuchProcess:  # the process ended after it was listed
            continue
        if name == "java":  # a child forked by the JVM shares its memory until exec
            found["java"] = max(found["java"], size)
        elif name != "mongod" and not is_left_over:
            found["python"] += size
    return found


def _resident(process: psutil.Process) -> int:
    """Return the resident bytes. Shared memory counts in full."""
    return int(process.memory_info().rss)


def _proportional(process: psutil.Process) -> int:
    """Return the proportional bytes. Shared memory is divided among its processes."""
    return int(getattr(process.memory_full_info(), "pss", 0) or _resident(process))


def timed(name: str, run: Callable[[], tuple[int, int]]) -> Measurement:
    """Measure one call of *run*, which returns documents and bytes."""
    started = time.perf_counter()
    documents, size = run()
    return Measurement(name, documents, size, time.perf_counter() - started)


def settings_in(folder: Path, uri: str) -> Settings:
    """Return the settings of a lake in a folder, which captures the database ``bench``."""
    return Settings(
        source={"name": "bench", "uri": uri},
        capture={"scope": "database", "target": "bench"},
        lake={"root": str(folder / "lake")},
    )


def print_line(record: Mapping[str, object]) -> None:
    """Print one line of JSON, at once."""
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()
