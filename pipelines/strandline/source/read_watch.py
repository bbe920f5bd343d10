"""Reads of the source that take long: the log names the reason, and a capture that was told to end cuts them off.

The driver has no way to end an operation that waits for an answer: a client that is closed still waits.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from strandline.source.client import AnyClient
from strandline.source.unreachable import wait_reason

_log = logging.getLogger("strandline.source")
_GRACE_SECONDS: Final = 3.0
_TELL_SECONDS: Final = 60.0
_REPEAT_SECONDS: Final = 0.5
_OPEN_FILES = Path("/dev/fd")
"""Linux and macOS list the open files of the process that asks. Elsewhere no operation is ended."""


@dataclass(eq=False)
class _Wait:
    """A read in progress. Times are of the monotonic clock."""

    task: str
    begin: float = field(default_factory=time.monotonic)
    due: float = field(init=False)
    """Time of the next warning."""

    def __post_init__(self) -> None:
        self.due = self.begin + _TELL_SECONDS


class ReadWatch:
    """Ends reads that are still in progress 3 seconds after *stop* or `ending` is set.

    MongoDB may answer only when a majority of its members is back. A chunk that is cut off is read by the next run.

    Args:
        stop: Ends the run.
        clients: Clients of this process. Their operations fail. The first one decodes documents.
    """

    def __init__(self, stop: threading.Event, clients: Sequence[AnyClient]) -> None:
        self._stop, self._clients = stop, clients
        self.ending = threading.Event()
        """Set when the run ends for another reason."""
        self.end_others: Callable[[], None] = lambda: None
        """Ends the reads of other processes."""
        self._waits: set[_Wait] = set()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="strandline-reads", daemon=True)

    def __enter__(self) -> ReadWatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()

    @contextmanager
    def waiting(self, task: str) -> Iterator[None]:
        """Log a warning with the reason for every minute that the block takes."""
        wait = _Wait(task)
        self._waits.add(wait)
        try:
            yield
        finally:
            self._waits.remove(wait)

    def warn_of_wait(self, task: str, seconds: float) -> None:
        """Log that *task* has had no answer for *seconds*, with the reason. I/O: asks the source for it."""
        for client in self._clients[:1]:
            _log.warning("%s: no end after %.0f s; %s", task, seconds, wait_reason(client))

    def _warn_of_waits(self) -> None:
        now = time.monotonic()
        for wait in tuple(self._waits):
            if now >= wait.due:
                wait.due = now + _TELL_SECONDS
                self.warn_of_wait(wait.task, now - wait.begin)

    def _watch(self) -> None:
        while not (self._stop.is_set() or self.ending.is_set()):
            if self._closed.wait(_REPEAT_SECONDS):
                return
            self._warn_of_waits()
        wait = _GRACE_SECONDS
        while not self._closed.wait(wait):
            self.end_others()
            _end_operations(self._clients)  # again and again: the driver may send a read twice
            wait = _REPEAT_SECONDS


def _end_operations(clients: Iterable[AnyClient]) -> None:
    """Cut the connections of this process to the servers that *clients* know. Their operations raise `AutoReconnect`.

    I/O: resolves the names of the servers.
    """
    peers = {peer for client in clients for host, port in client.nodes for peer in _addresses(host, port)}
    for descriptor in _descriptors() if peers else ():
        with suppress(OSError):  # it was closed meanwhile
            _cut(os.dup(descriptor), peers)


def _descriptors() -> list[int]:
    with suppress(OSError):
        return [int(entry.name) for entry in _OPEN_FILES.iterdir()]
    return []


def _addresses(host: str, port: int | None) -> set[Any]:
    if port is None:
        return {host}  # a socket in the file system
    with suppress(OSError):
        return {info[4][:2] for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    return set()


def _cut(descriptor: int, peers: set[Any]) -> None:
    """Cut the connection if *descriptor* is one to a peer, and close *descriptor*."""
    try:
        connection = socket.socket(fileno=descriptor)
    except OSError:  # it is no socket
        os.close(descriptor)
        return
    with connection:
        peer = connection.getpeername()
        if (peer[:2] if isinstance(peer, tuple) else peer) in peers:
            connection.shutdown(socket.SHUT_RDWR)
