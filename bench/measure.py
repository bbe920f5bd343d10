"""What one measurement is: documents, bytes, seconds, peak memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class Measurement:
    """*peak_python* and *peak_jvm* in bytes of resident memory, while it ran."""

    name: str
    documents: int
    size: int
    seconds: float
    peak_python: int
    peak_jvm: int

    @property
    def rate(self) -> float:
        return self.documents / self.seconds


def measured(name: str, run: Callable[[], tuple[int, int]]) -> Measurement:
    """Run once; *run* returns documents and bytes."""
    peaks, stop = {"python": 0, "java": 0}, threading.Event()

    def watch() -> None:
        this = psutil.Process()
        while not stop.wait(0.1):
            resident = {"python": this.memory_info().rss, "java": 0}
            for child in this.children(recursive=True):
                try:
                    kind = child.name()
                    resident["java" if kind == "java" else "python"] += 0 if kind == "mongod" else child.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            for kind, size in resident.items():
                peaks[kind] = max(peaks[kind], size)

    watcher = threading.Thread(target=watch)
    watcher.start()
    started = time.perf_counter()
    try:
        documents, size = run()
    finally:
        seconds = time.perf_counter() - started
        stop.set()
        watcher.join()
    return Measurement(name, documents, size, seconds, peaks["python"], peaks["java"])
