"""Processes of the program under test: their environment, a wait for what they do, and work beside them."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from strandline.io.spark.session import SHORT_LIVED

QUICK_JVM = {"JDK_JAVA_OPTIONS": SHORT_LIVED}
"""Environment of a process whose JVM lives for seconds."""


def source_settings(uri: str, database: str) -> dict[str, str]:
    """Settings that name the source, as environment variables."""
    return {
        "STRANDLINE_SOURCE__URI": uri,
        "STRANDLINE_SOURCE__NAME": "test",
        "STRANDLINE_CAPTURE__SCOPE": "database",
        "STRANDLINE_CAPTURE__TARGET": database,
    }


def environment(uri: str, database: str) -> dict[str, str]:
    """Environment of a process of the program, with a small and quick JVM."""
    spark = {"STRANDLINE_SPARK__CONF": '{"spark.driver.memory": "1g"}'}
    return os.environ | source_settings(uri, database) | spark | QUICK_JVM


def wait_until(holds: Callable[[], object], what: str = "", *, seconds: float = 300) -> None:
    """Ask again and again until *holds* returns something true. Fail with *what* after *seconds*."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


@contextmanager
def repeated(act: Callable[[int], object], *, every: float) -> Iterator[None]:
    """Call *act* with 0, 1, 2, … in a thread during the block. *every*: seconds between two calls."""
    ended = threading.Event()

    def work() -> None:
        for number in itertools.count():
            if ended.wait(every):
                return
            act(number)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        ended.set()
        worker.join()
