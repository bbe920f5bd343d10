"""A stand-in for a mongos: a proxy before a replica set that answers as a mongos does. No package has a mongos.

It changes what the driver and Strandline ask a mongos: ``hello``, ``buildInfo`` and commands that a mongos does not
know. Everything else comes from the one replica set behind it. So it shows nothing about several shards.
"""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import bson
from pymongo.uri_parser import parse_uri

HEADER: Final = struct.Struct("<iiii")
OP_REPLY, OP_QUERY, OP_MSG = 1, 2004, 2013
_OF_A_REPLICA_SET: Final = (
    *("setName", "setVersion", "hosts", "passives", "arbiters", "primary", "me", "electionId", "lastWrite"),
    *("topologyVersion", "secondary", "arbiterOnly", "passive", "hidden"),
)


@dataclass(frozen=True)
class Answers:
    """Changes to the server's answers.

    Args:
        version: Value of ``buildInfo.version``. None: the server's.
        wire_version: Value of ``hello.maxWireVersion``. None: the server's.
        mongos: Answer ``hello`` as a mongos.
        refused: Commands, or collections of ``find``, that are refused with code 13.
        unknown: Names of stages or options; an ``aggregate`` with one is refused with its code.
        replies: Replies to commands, instead of the server's.
        errors: Replies to the next commands of a name: how many, and the reply. The counts go down.
        events: Events, as documents, that the next reply with events of a change stream begins with.
    """

    version: str | None = None
    wire_version: int | None = None
    mongos: bool = True
    refused: Sequence[str] = ("replSetGetConfig",)
    unknown: Mapping[str, int] = field(default_factory=dict)
    replies: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    errors: dict[str, tuple[int, Mapping[str, Any]]] = field(default_factory=dict)
    events: list[Mapping[str, Any]] = field(default_factory=list)

    def changed(self, document: dict[str, Any]) -> dict[str, Any]:
        is_hello = "maxWireVersion" in document and ("isWritablePrimary" in document or "ismaster" in document)
        if is_hello and self.mongos:
            document = {key: value for key, value in document.items() if key not in _OF_A_REPLICA_SET}
            document["msg"] = "isdbgrid"
        if is_hello and self.wire_version is not None:
            document |= {"minWireVersion": 0, "maxWireVersion": self.wire_version}
        if "gitVersion" in document and self.version is not None:
            document["version"] = self.version
        return document

    def reply_to(self, command: dict[str, Any]) -> Mapping[str, Any] | None:
        """Return the reply that is sent instead of the server's. None: the server answers."""
        name = next(iter(command))
        if name in self.refused or (name == "find" and command[name] in self.refused):
            return {"ok": 0.0, "code": 13, "codeName": "Unauthorized", "errmsg": "not authorized"}
        for word, code in self.unknown.items():
            if name == "aggregate" and f"'{word}'" in str(command):
                return {"ok": 0.0, "code": code, "codeName": "x", "errmsg": "not known here"}
        times, reply = self.errors.get(name, (0, {}))
        if times:
            self.errors[name] = (times - 1, reply)
            return reply
        return self.replies.get(name)

    def spliced(self, body: bytes, at: int) -> bytes:
        """Return the body of a reply with `events` before the events of a change stream. Tokens lie between them."""
        document = bson.decode(body[at:], bson.CodecOptions(document_class=dict))
        batch = document.get("cursor", {}).get("nextBatch") or document.get("cursor", {}).get("firstBatch")
        if not batch or "operationType" not in batch[0]:
            return body
        first, added = batch[0], []
        for number, event in enumerate(self.events):
            token = {"_data": f"{first['_id']['_data'][:-4]}{number:04X}"}
            added.append(
                {"_id": token, "clusterTime": first["clusterTime"], "wallTime": first.get("wallTime"), **event}
            )
        self.events.clear()
        batch[:0] = added
        return body[:at] + bson.encode(document)


def read_message(source: Any) -> tuple[tuple[int, int, int, int], bytes] | None:
    head = source.read(HEADER.size)
    if len(head) < HEADER.size:
        return None
    header = HEADER.unpack(head)
    return header, source.read(header[0] - HEADER.size)


def packed(request: int, response_to: int, code: int, body: bytes) -> bytes:
    return HEADER.pack(HEADER.size + len(body), request, response_to, code) + body


def _document_at(code: int) -> int:
    """Offset of the answer's document in a message of this kind."""
    return 5 if code == OP_MSG else 20


def _forward_requests(client: socket.socket, server: socket.socket, answers: Answers) -> None:
    with suppress(OSError), client.makefile("rb") as source:
        while (found := read_message(source)) is not None:
            (_, request, response_to, code), body = found
            command = None
            if code == OP_MSG and body[4] == 0:
                size = int.from_bytes(body[5:9], "little")
                command = bson.decode(body[5 : 5 + size], bson.CodecOptions(document_class=dict))
            if command is not None and (reply := answers.reply_to(command)) is not None:
                client.sendall(packed(0, request, OP_MSG, struct.pack("<i", 0) + b"\0" + bson.encode(reply)))
            else:
                server.sendall(packed(request, response_to, code, body))
        server.shutdown(socket.SHUT_RDWR)


def _forward_answers(client: socket.socket, server: socket.socket, answers: Answers) -> None:
    with suppress(OSError), server.makefile("rb") as source:
        while (found := read_message(source)) is not None:
            (_, request, response_to, code), body = found
            at = _document_at(code)
            if len(body) < 100_000 and (code == OP_REPLY or body[4] == 0):  # hello and buildInfo are small
                size = int.from_bytes(body[at : at + 4], "little")
                if b"maxWireVersion" in body or b"gitVersion" in body:
                    document = answers.changed(bson.decode(body[at : at + size]))
                    body = body[:at] + bson.encode(document) + body[at + size :]
            if answers.events and code == OP_MSG and body[4] == 0 and b"operationType" in body:
                body = answers.spliced(body, at)
            client.sendall(packed(request, response_to, code, body))
        client.shutdown(socket.SHUT_RDWR)


@contextmanager
def mongos_before(uri: str, answers: Answers = Answers()) -> Iterator[str]:
    """Yield the URI of a stand-in before the server of *uri*."""
    host, port = parse_uri(uri)["nodelist"][0]

    class Connection(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError), socket.create_connection((host, port)) as server:
                arguments = (self.request, server, answers)
                threading.Thread(target=_forward_answers, args=arguments, daemon=True).start()
                _forward_requests(*arguments)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Connection) as listening:
        listening.daemon_threads = True
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        options = "" if answers.mongos else "?directConnection=true"
        yield f"mongodb://127.0.0.1:{listening.server_address[1]}/{options}"
        listening.shutdown()
