"""Questions to the source that need not be answered: a strange answer costs itself, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest
from arbiter_set import ArbiterSet
from bson import Timestamp
from lakehouse import settings_for
from mongos_stand_in import Answers, mongos_before
from pymongo import MongoClient
from pymongo.database import Database

from strandline.errors import ConfigurationError
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.lake_context import DeltaRsContext, open_capture_without_spark
from strandline.jobs.offsets.life_cycle import set_desired_state
from strandline.jobs.offsets.show_offset import show_offset
from strandline.jobs.snapshot.governor import SnapshotGovernor
from strandline.model.deployment import IDENTITY_PROPERTY
from strandline.model.table_schemas import bronze_table
from strandline.source.client import ConnectionOptions, collection_uuid, open_client
from strandline.source.deployment import inspect_deployment
from strandline.source.load import SourceLoad, reasons_to_slow
from strandline.source.load_probe import LoadProbe
from strandline.source.worker_probe import clock

Db = Database[dict[str, Any]]
Document = dict[str, Any]
_OTHER_TYPES: Final = (None, "text", -7, 1.5, True, [], {}, [None], {"a": 1}, datetime(1, 1, 1), Timestamp(1, 1))
OVERLOAD: Final = {
    "ok": 0.0,
    "code": 462,
    "codeName": "IngressRequestRateLimitExceeded",
    "errmsg": "rate exceeded",
    "errorLabels": ["SystemOverloadedError", "RetryableError"],
}
PROBES: Final = ("serverStatus", "replSetGetStatus", "replSetGetConfig")


def native(uri: str, database: str, root: Path, **capture: Any) -> DeltaRsContext:
    ctx = open_capture_without_spark(settings_for(uri, database, root, **{"engine": "native", **capture}))
    assert ctx is not None
    return ctx


def changed(value: Any) -> Iterator[Any]:
    """Yield *value* with one field removed, or with one value of another type, at any depth."""
    if isinstance(value, Mapping):
        for key in value:
            rest = {name: each for name, each in value.items() if name != key}
            yield rest
            yield from (rest | {key: other} for other in (*_OTHER_TYPES, *changed(value[key])))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            before, after = value[:number], value[number + 1 :]
            yield [*before, *after]
            yield from ([*before, other, *after] for other in (*_OTHER_TYPES, *changed(each)))


@pytest.fixture(scope="module")
def arbiter_uri() -> Iterator[str]:
    with ArbiterSet() as server:
        yield server.uri


# scenario: N04
def test_a_set_with_an_arbiter_is_captured(arbiter_uri: str, tmp_path: Path) -> None:
    with MongoClient[Document](arbiter_uri) as mongo:
        mongo.shop.a.insert_many([{"_id": number} for number in range(20)])
    assert run_capture(native(arbiter_uri, "shop", tmp_path), once=True).documents == 20


def test_a_reply_without_a_field_or_with_another_type_costs_only_its_answer(arbiter_uri: str) -> None:
    with MongoClient[Document](arbiter_uri) as mongo:
        status, members, config = (mongo.admin.command(command) for command in PROBES)
        (info,) = mongo.admin.list_collections(filter={"name": "system.version"})
    assert "optimeDate" not in members["members"][1], "an arbiter has no time"
    status = {key: status[key] for key in ("wiredTiger", "flowControl", "repl")}
    status["wiredTiger"] = {"concurrentTransactions": status["wiredTiger"]["concurrentTransactions"]}
    since_8 = {"queues": {"execution": status["wiredTiger"]["concurrentTransactions"]}}
    tried = 0
    for load in (
        *(SourceLoad.of([reply], members, config) for each in (status, since_8) for reply in changed(each)),
        *(SourceLoad.of([status], reply, config) for reply in changed(members)),
        *(SourceLoad.of([status], members, reply) for reply in changed(config)),
    ):
        assert reasons_to_slow(load).keys() <= {"tickets", "flow_control"}, load
        tried += 1
    assert tried > 1_000
    assert {collection_uuid(each) for each in changed(info)} == {collection_uuid(info), None}


def test_one_strange_member_does_not_hide_the_lag_of_another() -> None:
    now = datetime(2026, 1, 1)
    config = {"config": {"members": [{"host": name} for name in "abc"]}}
    members = [
        {"name": "a", "state": 1, "optimeDate": now},
        {"name": "b", "state": 2, "optimeDate": datetime(2025, 1, 1)},
    ]
    lagging = SourceLoad.of([], {"members": members}, config).lag_seconds
    assert lagging
    for strange in ({"name": "c", "state": 7}, {"name": "c", "state": 2, "optimeDate": "soon"}, {}, None, "c"):
        assert SourceLoad.of([], {"members": [strange, *members]}, config).lag_seconds == lagging


@pytest.mark.parametrize(
    "reply",
    [{"ok": 1.0}, OVERLOAD, OVERLOAD | {"code": 999_999}, {"ok": 0.0}],
    ids=["empty", "overload", "overload with another code", "no code"],
)
def test_a_capture_whose_probes_get_no_answer_captures_everything(
    mongo_uri: str, database: Db, tmp_path: Path, reply: Document, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SnapshotGovernor.__init__.__kwdefaults__, "hold_seconds", 1.0)
    database.a.insert_many([{"_id": number} for number in range(10)])
    refused = dict.fromkeys(PROBES, (6, reply))  # a few times: under overload, a chunk waits a minute
    answers = Answers(mongos=False, refused=(), errors=refused)
    with mongos_before(mongo_uri, answers) as uri:
        ctx = native(uri, database.name, tmp_path)
        assert run_capture(ctx, once=True).documents == 10
        assert "/" not in ctx.tables.properties(bronze_table("test"))[IDENTITY_PROPERTY], "the id is not known"
        assert clock(uri)[0] is not None
    database.a.insert_one({"_id": "later"})
    assert run_capture(native(mongo_uri, database.name, tmp_path), once=True).events == 1


def test_a_probe_is_asked_again_after_an_overload_and_not_after_a_refusal(mongo_uri: str) -> None:
    for reply, forgotten in ((OVERLOAD, False), ({"ok": 0.0, "code": 13, "errmsg": "x"}, True)):
        replies = {"serverStatus": reply}
        with (
            mongos_before(mongo_uri, Answers(mongos=False, refused=(), replies=replies)) as uri,
            closing(open_client(ConnectionOptions(uri), raw=True)) as client,
        ):
            probe = LoadProbe(client)
            for _ in range(3):
                load = probe.read()
                assert (load.tickets, "overload" in reasons_to_slow(load)) == ((), not forgotten)
            del replies["serverStatus"]
            load = probe.read()
            assert (bool(load.tickets), load.overload) == (not forgotten, False)


@pytest.mark.parametrize("command", ["aggregate", "getMore", "find", "listCollections", "ping", "hello"])
@pytest.mark.parametrize("code", [462, 999_999])
def test_a_capture_of_an_overloaded_source_retries_and_captures_everything(
    mongo_uri: str, database: Db, tmp_path: Path, command: str, code: int
) -> None:
    """R1."""
    database.a.insert_many([{"_id": number} for number in range(10)])
    errors: dict[str, tuple[int, Document]] = {command: (2, OVERLOAD | {"code": code})}
    with mongos_before(mongo_uri, Answers(mongos=False, refused=(), errors=errors)) as uri:
        ctx = native(uri, database.name, tmp_path, connect_backoff_initial_delay_ms=100)
        assert run_capture(ctx, once=True).documents == 10
        database.a.insert_one({"_id": "later"})
        assert run_capture(ctx, once=True).events == 1


@pytest.mark.parametrize(
    ("version", "wire_version"),
    [("7.0.31", 21), ("8.0.20", 25), ("8.2.6", 27), ("8.3.2", 28), ("9.0.4", 29), ("9.1.0-rc0", 29)],
    ids="R7 {}".format,
)
def test_a_source_that_says_it_is_newer_is_captured(
    mongo_uri: str, database: Db, tmp_path: Path, version: str, wire_version: int
) -> None:
    database.a.insert_many([{"_id": number} for number in range(10)])
    with mongos_before(mongo_uri, Answers(version, wire_version, mongos=False, refused=())) as uri:
        ctx = native(uri, database.name, tmp_path)
        assert run_capture(ctx, once=True).documents == 10
        database.a.insert_one({"_id": "later"})
        assert run_capture(ctx, once=True).events == 1


def test_a_time_limit_of_the_server_ends_a_snapshot_with_its_cause(
    mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    """R2: 50 at find."""
    database.a.insert_one({"_id": 1})
    reply = {"ok": 0.0, "code": 50, "codeName": "MaxTimeMSExpired", "errmsg": "operation exceeded time limit"}
    with (
        mongos_before(mongo_uri, Answers(mongos=False, refused=(), replies={"find": reply})) as uri,
        pytest.raises(ConfigurationError, match="defaultMaxTimeMS"),
    ):
        run_capture(native(uri, database.name, tmp_path), once=True)


def test_a_replica_set_id_of_another_type_falls_back_to_the_sets_name(mongo_uri: str) -> None:
    odd = {"ok": 1.0, "config": {"settings": {"replicaSetId": 7}}}
    answers = Answers(mongos=False, refused=(), replies={"replSetGetConfig": odd})
    with mongos_before(mongo_uri, answers) as uri, closing(open_client(ConnectionOptions(uri), raw=True)) as client:
        assert inspect_deployment(client).identity == "strandline"


@pytest.mark.parametrize(
    "reply", [{"ok": 1.0}, OVERLOAD, {"ok": 1.0, "cursor": {"id": 0, "ns": "x.y", "firstBatch": []}}]
)
def test_a_source_without_an_answer_hides_neither_its_offset_nor_a_stop(
    mongo_uri: str, database: Db, tmp_path: Path, reply: Document
) -> None:
    database.a.insert_one({"_id": 1})
    run_capture(native(mongo_uri, database.name, tmp_path), once=True)
    with mongos_before(
        mongo_uri, Answers(mongos=False, refused=(), replies={"aggregate": reply, "ping": reply})
    ) as uri:
        ctx = native(uri, database.name, tmp_path)
        offset = show_offset(ctx)
        assert (offset.batch > 0, offset.headroom_seconds, bool(offset.warning)) == (True, None, True)
        assert set_desired_state(ctx, "stopped", by="test", why=None).state == "stopped"
