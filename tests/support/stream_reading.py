"""Change stream reader for tests, and ways to make the server fail."""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import bson
import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.uri_parser import parse_uri

from strandline.jobs.selection import selection_of
from strandline.settings.capture import CaptureSettings
from strandline.source.change_batch import ChangeBatch
from strandline.source.change_stream import StreamReader
from strandline.source.client import AnyClient, ConnectionOptions, open_client, operation_time, token_data
from strandline.source.mongod import configured_uri
from strandline.source.resume import ResumePoint
from strandline.source.retry_policy import RetryPolicy
from strandline.source.stages import Selection
from strandline.source.stream_opening import StreamLimits, open_stream, token_at

Db = Database[dict[str, Any]]

# A server that MONGODB_URI names is the user's own: it may be of any kind, and nobody should break its answers.
needs_failpoints = pytest.mark.skipif(
    configured_uri() is not None, reason="failpoints need a server with enableTestCommands, the embedded one"
)
QUICK = RetryPolicy(initial_delay_ms=5, max_delay_ms=20)


class Reading:
    """A reader of one database, with the batches that it returned."""

    def __init__(
        self,
        uri: str,
        database: Db,
        limits: StreamLimits = StreamLimits(),
        retry_policy: RetryPolicy = QUICK,
        **selection: Any,
    ) -> None:
        self.client = open_client(
            ConnectionOptions(f"{uri}&heartbeatFrequencyMS=500", server_selection_timeout_ms=5000), raw=True
        )
        self.selection = Selection("database", database.name, **selection)
        start = ResumePoint(token=token_at(self.client, self.selection, expanded_events=False))
        self.reader = StreamReader(
            self.client, self.selection, start, limits=limits, retry_policy=retry_policy, expanded_events=False
        )
        self.ends_at = float("inf")
        self.batches = self.reader.batches(lambda: time.monotonic() < self.ends_at)
        self.events: list[dict[str, Any]] = []
        self.landed: list[ChangeBatch] = []

    def until(self, count: int) -> list[Any]:
        """Return the `_id`s of the first *count* events."""
        deadline = time.monotonic() + 30
        while len(self.events) < count:
            assert time.monotonic() < deadline, self.events
            batch = next(self.batches)
            self.landed.append(batch)
            self.events += [bson.decode(event) for event in batch.events]
        return [event["documentKey"]["_id"] for event in self.events]

    def wait_at_most(self, *, seconds: float) -> None:
        self.ends_at = time.monotonic() + seconds

    def until_silent(self, *, seconds: float) -> None:
        """Read until no event has come for so many seconds."""
        self.wait_at_most(seconds=seconds)
        for _ in self.batches:
            self.wait_at_most(seconds=seconds)


@contextmanager
def reading(
    uri: str, database: Db, limits: StreamLimits = StreamLimits(), retry_policy: RetryPolicy = QUICK, **selection: Any
) -> Iterator[Reading]:
    found = Reading(uri, database, limits, retry_policy, **selection)
    with closing(found.client), closing(found.batches):
        yield found


def selection(**capture: Any) -> Selection:
    """The selection of these settings; without a scope of the whole deployment."""
    return selection_of(CaptureSettings(**{"scope": "deployment", **capture}))


def shown(raw_client: AnyClient, selected: Selection, start: ResumePoint) -> list[dict[str, Any]]:
    """Events that a stream shows, up to the present, as the server sends them."""
    end = token_data(token_at(raw_client, Selection(), ResumePoint(cluster_time=operation_time(raw_client))))
    events = []
    with open_stream(raw_client, selected, start, StreamLimits(), True) as stream:
        while stream.resume_token is None or stream.resume_token["_data"] < end:
            found = stream.try_next()
            if found is not None:
                events.append(bson.decode(found.raw))
    return events


@contextmanager
def failing(mongo: MongoClient[Any], command: str, times: int | str = 1, **how: Any) -> Iterator[int]:
    """Make the server fail *command* (or several, separated by spaces) of our clients, so many times or always.

    Yields the failpoint's earlier count, for ``waitForFailPoint``.
    """
    mode = {"times": times} if isinstance(times, int) else times
    data = {"failCommands": command.split(), "appName": "strandline", **how}
    before = mongo.admin.command("configureFailPoint", "failCommand", mode=mode, data=data)["count"]
    try:
        yield before
    finally:
        mongo.admin.command("configureFailPoint", "failCommand", mode="off")


@contextmanager
def dropping(uri: str, *, answers_above: int) -> Iterator[str]:
    """Proxy to the same server that closes a connection at a reply above this size, in bytes."""
    host, port = parse_uri(uri)["nodelist"][0]

    class Connection(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError), socket.create_connection((host, port)) as server, server.makefile("rb") as answers:
                threading.Thread(target=forward, args=(self.request, server), daemon=True).start()
                while len(size := answers.read(4)) == 4 and int.from_bytes(size, "little") <= answers_above:
                    self.request.sendall(size + answers.read(int.from_bytes(size, "little") - 4))
                server.shutdown(socket.SHUT_RDWR)

    def forward(client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while asked := client.recv(65_536):
                server.sendall(asked)
            server.shutdown(socket.SHUT_RDWR)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Connection) as listening:
        listening.daemon_threads = True
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"mongodb://127.0.0.1:{listening.server_address[1]}/?directConnection=true"
        listening.shutdown()
