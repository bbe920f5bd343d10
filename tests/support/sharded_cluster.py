"""A stand-in for a sharded cluster: replica sets as shards, and a server before them that answers as a mongos does.

It reads only; a test writes to the shards. What it does as a mongos does:

- Events of the shards are merged by resume token. One is sent when no shard can send an earlier one.
- A stream continues on every shard at the cluster time of the token. What is not later than the token is left out.
- Each command brings the newest cluster time that the server knows to the shards, and back.
- ``find`` without ``sort`` returns the documents of the shards in no order.
- A document that moved is read from its owner. Events of a move are not sent.

It differs: there are no chunks and no config servers (shard 0 has the database ``config``), and it does not check that
the event of a token exists.
"""

from __future__ import annotations

import itertools
import socketserver
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import bson
from bson import Int64, MaxKey, MinKey, Timestamp
from mongos_stand_in import OP_MSG, OP_REPLY, Answers, packed, read_message
from pymongo import MongoClient
from pymongo import errors as mongo

from strandline.source.mongod import EmbeddedMongod

Document = dict[str, Any]
_OF_THE_DRIVER: Final = ("lsid", "$clusterTime", "$db", "$readPreference", "txnNumber")
_ALIKE_ON_ALL_SHARDS: Final = ("listCollections", "buildinfo", "buildInfo", "explain", "endSessions")
_COMMAND_NOT_FOUND: Final = 59


@dataclass
class _Shard:
    client: MongoClient[Document]
    number: int


@dataclass
class ShardedCluster:
    """Shards, the owner of each document that moved, and the newest cluster time that the mongos knows.

    Args:
        key: Fields of the shard key beside `_id`. Events hold them in ``documentKey``.
    """

    shards: Sequence[_Shard]
    key: tuple[str, ...] = ()
    uri: str = ""
    newest: Document | None = None
    _owners: dict[tuple[str, str, Any], list[tuple[Timestamp, int]]] = field(default_factory=dict)
    _hidden: set[tuple[int, Timestamp]] = field(default_factory=set)
    _cursors: dict[int, _Stream | deque[Document]] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def collection(self, shard: int, database: str, name: str) -> Any:
        """Return a collection of one shard, for the writes of a test."""
        return self.shards[shard].client[database][name]

    def create(self, database: str, name: str) -> None:
        """Create a collection that has the same UUID on all shards."""
        self.shards[0].client[database].create_collection(name)
        (info,) = self.shards[0].client[database].list_collections(filter={"name": name})
        entry = {"op": "c", "ns": f"{database}.$cmd", "ui": info["info"]["uuid"], "o": {"create": name}}
        for shard in self.shards[1:]:
            shard.client.admin.command({"applyOps": [entry]})

    def set_clock_ahead(self, shard: int, seconds: int) -> None:
        """Advance the cluster time of one shard. The others learn of it from the mongos."""
        told = self.shards[shard].client.admin.command("ping")["$clusterTime"]
        ahead = {**told, "clusterTime": Timestamp(told["clusterTime"].time + seconds, 1)}
        with self.shards[shard].client.start_session() as session:
            session.advance_cluster_time(ahead)
            self.shards[shard].client.admin.command("ping", session=session)

    def move(self, database: str, name: str, identifier: Any, target: int) -> None:
        """Move a document to another shard, as a migration does: copy, change the owner, delete."""
        source = next(
            shard
            for shard in self.shards
            if self._owned(shard, database, name, [{"_id": identifier}], None)
            and shard.number != target
            and shard.client[database][name].find_one({"_id": identifier})
        )
        found = self.ask(source, database, {"find": name, "filter": {"_id": identifier}})  # its time is told on
        (copied,) = found["cursor"]["firstBatch"]
        insert = {"insert": name, "documents": [copied]}
        owners = self._owners.setdefault((database, name, identifier), [(Timestamp(0, 0), source.number)])
        self._hidden.add((target, self.ask(self.shards[target], database, insert)["operationTime"]))
        owners.append((self._now(), target))
        delete = {"delete": name, "deletes": [{"q": {"_id": identifier}, "limit": 1}]}
        self._hidden.add((source.number, self.ask(source, database, delete)["operationTime"]))

    def _now(self) -> Timestamp:
        assert self.newest is not None
        now: Timestamp = self.newest["clusterTime"]
        return now

    def ask(self, shard: _Shard, database: str, command: Document, session: Any = None) -> Document:
        """Run a command on one shard and tell it the newest cluster time."""
        with ExitStack() as opened:
            session = session or opened.enter_context(shard.client.start_session())
            self.learn(session.cluster_time)
            if self.newest is not None:
                session.advance_cluster_time(self.newest)
            reply = dict(shard.client[database].command(command, session=session))
        self.learn(reply.get("$clusterTime"))
        return reply

    def learn(self, told: Mapping[str, Any] | None) -> None:
        if told is not None and (self.newest is None or told["clusterTime"] > self._now()):
            self.newest = dict(told)

    def is_hidden(self, shard: int, event: Document) -> bool:
        """Return True if the event is part of a move."""
        return (shard, _time_of(event["_id"])) in self._hidden

    def answer(self, command: Document) -> Document:
        """Return the reply to a command."""
        database = command["$db"]
        self.learn(command.get("$clusterTime"))
        plain = {name: value for name, value in command.items() if name not in _OF_THE_DRIVER}
        try:
            reply = self._answer(next(iter(plain)), database, plain)
        except mongo.OperationFailure as error:
            reply = {"ok": 0.0, **(error.details or {})}
        if self.newest is not None:
            reply |= {"operationTime": self._now(), "$clusterTime": self.newest}
        return reply

    def _answer(self, name: str, database: str, command: Document) -> Document:
        match name:
            case "hello" | "isMaster" | "ismaster":
                hello = self.ask(self.shards[0], "admin", {name: 1, "helloOk": True})
                return Answers().changed(hello)
            case "ping":  # a mongos asks no shard
                return {"ok": 1.0}
            case "getMore" | "killCursors":
                return self._continued(name, command)
            case "aggregate" if command["pipeline"] and "$changeStream" in command["pipeline"][0]:
                return self._reply(database, command, _Stream(self, database, command))
            case "count":
                return {"ok": 1.0, "n": sum(self.ask(shard, database, command)["n"] for shard in self.shards)}
            case "find" if database != "config":
                return self._reply(database, command, self._found(database, command))
            case "aggregate":
                return self._reply(database, command, self._aggregated(database, command))
            case "listDatabases":
                replies = [self.ask(shard, database, command) for shard in self.shards]
                found = {each["name"]: each for reply in replies for each in reply["databases"]}
                return {**replies[0], "databases": list(found.values())}
            case _ if name in _ALIKE_ON_ALL_SHARDS or name == "find":
                return self.ask(self.shards[0], database, command)
        return {
            "ok": 0.0,
            "code": _COMMAND_NOT_FOUND,
            "codeName": "CommandNotFound",
            "errmsg": f"no such command: {name}",
        }

    def _found(self, database: str, command: Document) -> deque[Document]:
        skip, limit = command.pop("skip", 0), command.pop("limit", 0)
        wanted = {**command, "batchSize": 100_000} | ({"limit": skip + limit} if limit else {})
        at = command.get("readConcern", {}).get("atClusterTime")
        found = [
            document
            for shard in reversed(self.shards)  # without a sort nobody may rely on an order
            for document in self._owned(shard, database, command["find"], self._read(shard, database, wanted), at)
        ]
        if "sort" in command:
            found.sort(key=_by_id)
        return deque(found[skip : skip + limit] if limit else found[skip:])

    def _aggregated(self, database: str, command: Document) -> deque[Document]:
        wanted = {**command, "cursor": {"batchSize": 100_000}}
        found = [document for shard in self.shards for document in self._read(shard, database, wanted)]
        if any("$sort" in stage for stage in command["pipeline"]):
            found.sort(key=_by_id)
        return deque(found)

    def _read(self, shard: _Shard, database: str, command: Document) -> list[Document]:
        cursor = self.ask(shard, database, command)["cursor"]
        assert cursor["id"] == 0, "a test of the stand-in has few documents"
        return list(cursor["firstBatch"])

    def _owned(
        self, shard: _Shard, database: str, name: str, found: Sequence[Document], at: Timestamp | None
    ) -> list[Document]:
        """Return the documents that a shard owns at a cluster time."""

        def owner(identifier: Any) -> int:
            moves = self._owners.get((database, name, _hashable(identifier)), [(Timestamp(0, 0), shard.number)])
            return [number for moved, number in moves if moved <= (at or self._now())][-1]

        return [document for document in found if owner(document.get("_id")) == shard.number]

    def _reply(self, database: str, command: Document, cursor: _Stream | deque[Document]) -> Document:
        number = next(self._numbers)
        self._cursors[number] = cursor
        size = command.get("batchSize", command.get("cursor", {}).get("batchSize", 101))
        name = next(iter(command.values()))
        return self._batch(number, "firstBatch", size, f"{database}.{'$cmd.aggregate' if name == 1 else name}", 0)

    def _continued(self, name: str, command: Document) -> Document:
        if name == "killCursors":
            for number in command["cursors"]:
                self._cursors.pop(number, None)
            return {"ok": 1.0, "cursorsKilled": command["cursors"]}
        if command["getMore"] not in self._cursors:
            return {"ok": 0.0, "code": 43, "codeName": "CursorNotFound", "errmsg": "cursor id not found"}
        namespace = f"{command['collection']}"
        return self._batch(
            command["getMore"],
            "nextBatch",
            command.get("batchSize", 100_000),
            namespace,
            command.get("maxTimeMS", 1000),
        )

    def _batch(self, number: int, kind: str, size: int, namespace: str, wait_ms: int) -> Document:
        cursor = self._cursors[number]
        if isinstance(cursor, _Stream):
            events = cursor.take(size, wait_ms)
            shown = {kind: events, "id": Int64(number), "ns": namespace, "postBatchResumeToken": cursor.token}
            return {"cursor": shown, "ok": 1.0}
        batch = [cursor.popleft() for _ in range(min(size, len(cursor)))]
        if not cursor:
            del self._cursors[number]
        return {"cursor": {kind: batch, "id": Int64(number if cursor else 0), "ns": namespace}, "ok": 1.0}


def _hashable(identifier: Any) -> Any:
    return identifier if isinstance(identifier, int | str | bson.ObjectId) else repr(identifier)


def _by_id(document: Document) -> tuple[int, Any]:
    """Sort key of numbers and the two ends; enough for tests."""
    identifier = document["_id"]
    if isinstance(identifier, MinKey):
        return 0, 0
    return (2, 0) if isinstance(identifier, MaxKey) else (1, identifier)


class _Stream:
    """Change stream of all shards, in the order of the resume tokens."""

    def __init__(self, cluster: ShardedCluster, database: str, command: Document) -> None:
        self._cluster, self._database, self._name = cluster, database, command["aggregate"]
        self._sources = list(cluster.shards)
        stage = dict(command["pipeline"][0]["$changeStream"])
        token = stage.pop("resumeAfter", None) or stage.pop("startAfter", None)
        self._floor = "" if token is None else str(token["_data"])
        if token is not None:
            stage["startAtOperationTime"] = _time_of(token)
        elif "startAtOperationTime" not in stage:
            stage["startAtOperationTime"] = cluster._now()
        opened = {
            **command,
            "pipeline": [{"$changeStream": stage}, *command["pipeline"][1:]],
            "cursor": {"batchSize": 0},
        }
        self._sessions = [shard.client.start_session() for shard in self._sources]
        self._ids: list[int] = []
        self._waiting: list[deque[Document]] = [deque() for _ in self._sources]
        self._promised: list[Document] = []
        for shard, session in zip(self._sources, self._sessions, strict=True):
            cursor = cluster.ask(shard, database, opened, session)["cursor"]
            self._ids.append(cursor["id"])
            self._promised.append(cursor["postBatchResumeToken"])
        self.token: Document = token or min(self._promised, key=_data)

    def take(self, size: int, wait_ms: int) -> list[Document]:
        """Return up to *size* events, and move the token."""
        deadline = time.monotonic() + wait_ms / 1000
        while True:
            if size and wait_ms:
                self._ask_shards()
            taken = self._sendable(size)
            if taken or time.monotonic() >= deadline:
                return taken

    def _ask_shards(self) -> None:
        for number, shard in enumerate(self._sources):
            if self._waiting[number]:
                continue
            more = {"getMore": Int64(self._ids[number]), "collection": self._collection, "maxTimeMS": 50}
            cursor = self._cluster.ask(shard, self._database, more, self._sessions[number])["cursor"]
            self._promised[number] = cursor["postBatchResumeToken"]
            for event in cursor["nextBatch"]:
                if str(event["_id"]["_data"]) > self._floor and not self._cluster.is_hidden(number, event):
                    self._waiting[number].append(self._with_shard_key(event))

    @property
    def _collection(self) -> str:
        return "$cmd.aggregate" if self._name == 1 else str(self._name)

    def _with_shard_key(self, event: Document) -> Document:
        if self._cluster.key and "documentKey" in event:
            of = event.get("fullDocument") or {}
            event["documentKey"] = {name: of.get(name) for name in self._cluster.key} | event["documentKey"]
        return event

    def _sendable(self, size: int) -> list[Document]:
        taken: list[Document] = []
        while len(taken) < size:
            heads = {number: str(queue[0]["_id"]["_data"]) for number, queue in enumerate(self._waiting) if queue}
            if not heads:
                break
            first = min(heads, key=lambda number: heads[number])
            if any(
                _data(self._promised[number]) < heads[first]
                for number in range(len(self._waiting))
                if number not in heads
            ):
                break
            taken.append(self._waiting[first].popleft())
        if taken:
            self.token = taken[-1]["_id"]
        silent = [self._promised[number] for number, queue in enumerate(self._waiting) if not queue]
        if silent and len(taken) < max(size, 1):
            self.token = max(self.token, min(silent, key=_data), key=_data)
        return taken


def _data(token: Document) -> str:
    return str(token["_data"])


def _time_of(token: Document) -> Timestamp:
    """Return the cluster time with which every resume token begins, after one byte for its type."""
    return Timestamp(*struct.unpack(">II", bytes.fromhex(_data(token)[2:18])))


def _serve(cluster: ShardedCluster, connection: Any) -> None:
    with suppress(OSError), connection.makefile("rb") as source:
        while (found := read_message(source)) is not None:
            (_, request, _, code), body = found
            if code == OP_MSG:
                command = bson.decode(body[5 : 5 + int.from_bytes(body[5:9], "little")])
                reply = struct.pack("<i", 0) + b"\0" + bson.encode(cluster.answer(command))
                connection.sendall(packed(0, request, OP_MSG, reply))
            else:  # the first hello of a driver: flags, name of the collection, two numbers, the command
                command = bson.decode(body[body.index(b"\0", 4) + 9 :])
                document = bson.encode(cluster.answer({**command, "$db": "admin"}))
                connection.sendall(packed(0, request, OP_REPLY, struct.pack("<iqii", 8, 0, 0, 1) + document))


@contextmanager
def sharded_cluster(shards: int = 2, key: tuple[str, ...] = ()) -> Iterator[ShardedCluster]:
    """Yield a running cluster. An idle shard writes a no-op every second, which moves its token."""
    with ExitStack() as running:
        quick = {"writePeriodicNoops": "true", "periodicNoopIntervalSecs": "1", "enableTestCommands": "1"}
        servers = [running.enter_context(EmbeddedMongod(set_parameters=quick)) for _ in range(shards)]
        clients = [
            running.enter_context(MongoClient[Document](server.uri, uuidRepresentation="standard"))
            for server in servers
        ]
        cluster = ShardedCluster([_Shard(client, number) for number, client in enumerate(clients)], key)
        for shard in cluster.shards:
            cluster.ask(shard, "admin", {"ping": 1})

        class Connection(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                _serve(cluster, self.request)

        listening = running.enter_context(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Connection))
        listening.daemon_threads = True
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        cluster.uri = f"mongodb://127.0.0.1:{listening.server_address[1]}/"
        yield cluster
        listening.shutdown()
