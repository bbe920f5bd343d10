"""Reads of the source that do not return after a capture was told to end are cut off from another thread.

The driver has no way to end an operation that waits for an answer: a client that is closed still waits.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from strandline.source.client import AnyClient

_GRACE_SECONDS: Final = 3.0
_REPEAT_SECONDS: Final = 0.5
_OPEN_FILES = Path("/dev/fd")
"""Linux and macOS list the open files of the process that asks. Elsewhere no operation is ended."""


class ReadWatch:
    """Ends reads that are still in progress 3 seconds after *stop* or `ending` is set.

    MongoDB may answer only when a majority of its members is back. A chunk that is cut off is read by the next run.

    Args:
        stop: Ends the run.
        clients: Clients of this process. Their operations fail.
    """

    def __init__(self, stop: threading.Event, clients: Sequence[AnyClient]) -> None:
        self._stop, self._clients = stop, clients
        self.ending = threading.Event()
        """Set when the run ends for another reason."""
        self.end_others: Callable[[], None] = lambda: None
        """Ends the reads of other processes."""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="strandline-reads", daemon=True)

    def __enter__(self) -> ReadWatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()

    def _watch(self) -> None:
        while not (self._stop.is_set() or self.ending.is_set()):
            if self._closed.wait(_REPEAT_SECONDS):
                return
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
        return [int(each.name) for each in _OPEN_FILES.iterdir()]
    return []


def _addresses(host: str, port: int | None) -> set[Any]:
    if port is None:
        return {host}  # a socket in the file system
    with suppress(OSError):
        return {found[4][:2] for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
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
