"""What one measurement is: documents, bytes, seconds, the steady state in it, peak memory."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

_SAMPLE_SECONDS = 0.1
_EXACT_EVERY = 10
"""Samples. To tell what processes share the kernel walks all their pages: in each sample, that took a tenth of both cores of a snapshot."""
_GROWN = 1.05
"""Times the most resident memory at which it was asked: beyond that it is asked at once."""


@dataclass
class Marks:
    """When how much had landed: called with the number of documents after each commit. Threads may call it."""

    started: float = field(default_factory=time.perf_counter)
    landings: list[tuple[float, int]] = field(default_factory=list)

    def __call__(self, _what: str, count: int) -> None:
        if count:
            self.landings.append((time.perf_counter() - self.started, count))

    def steady(self, lanes: int) -> float | None:
        """Documents a second between the first landing of each of *lanes* and the last of all; None where that is too little to say."""
        begun, counted = self.landings[:lanes], self.landings[lanes:]
        if len(counted) < lanes:
            return None
        return sum(count for _, count in counted) / (counted[-1][0] - begun[-1][0])


@dataclass(frozen=True)
class Peak:
    """Highest memory in use, in bytes: of this process and its Python children, of the JVM, and of both at the same moment. What
    processes share counts once."""

    python: int
    jvm: int
    both: int


@dataclass(frozen=True)
class Measurement:
    """*size* in bytes of BSON as the server sends it; *stored* in bytes on disk, where something was stored."""

    name: str
    documents: int
    size: int
    seconds: float
    steady: float | None = None
    stored: int | None = None
    peak: Peak | None = None

    @property
    def rate(self) -> float:
        """Documents a second, from the call to its return."""
        return self.documents / self.seconds


class MemoryWatch:
    """Samples the memory of this process and everything below it, while the block runs; but not of mongod, nor of what an earlier run left
    behind and this one has not used: Spark keeps its Python workers. A peak of less than a second may be told too low."""

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
    """Bytes of *this* process and of those below it, by kind, as *memory* tells of each; without those that have not run since *before*."""
    found = {"python": memory(this), "java": 0}
    for child in this.children(recursive=True):
        try:
            name, size = Path(child.exe()).name, memory(child)
            is_left_over = child.cpu_times()[:2] == before.get(child.pid)
        except psutil.NoSuchProcess:  # ended between being listed and being asked
            continue
        if name == "java":  # a process that it begins shares all of its memory until it runs something else
            found["java"] = max(found["java"], size)
        elif name != "mongod" and not is_left_over:
            found["python"] += size
    return found


def _resident(process: psutil.Process) -> int:
    """Bytes in use, shared ones in full."""
    return int(process.memory_info().rss)


def _proportional(process: psutil.Process) -> int:
    """Bytes in use; what processes share, as forks of one do, is divided among them."""
    return int(getattr(process.memory_full_info(), "pss", 0) or _resident(process))


def timed(name: str, run: Callable[[], tuple[int, int]]) -> Measurement:
    """Run once; *run* returns documents and bytes."""
    started = time.perf_counter()
    documents, size = run()
    return Measurement(name, documents, size, time.perf_counter() - started)
