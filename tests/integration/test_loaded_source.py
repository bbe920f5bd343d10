"""A snapshot that is slower than it could be: by its rate limit, and because the source is loaded."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from guarded_server import guarded_server, uri_of
from lakehouse import settings_for, spark_pipeline
from prometheus_client import REGISTRY
from pymongo import MongoClient
from pymongo.database import Database
from pyspark.sql import SparkSession

from strandline.io.telemetry.live_state import CaptureState, SnapshotNow
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.capture.stream_loop import CaptureResult
from strandline.jobs.lake_context import CaptureContext, open_capture_without_spark
from strandline.source.client import ConnectionOptions, open_client
from strandline.source.load import SourceLoad, reasons_to_slow
from strandline.source.load_probe import LoadProbe
from strandline.source.mongod import EmbeddedMongod

Db = Database[dict[str, Any]]
_TICKETS = 10


def native(uri: str, database: str, folder: Path, **capture: Any) -> CaptureContext:
    opened = open_capture_without_spark(settings_for(uri, database, folder / "lake", **{"engine": "native", **capture}))
    assert opened is not None
    return opened.for_capture()


def read_at(folder: Path) -> list[tuple[int, int]]:
    """Chunk and number of documents of each chunk in bronze."""
    rows = DeltaTable(str(folder / "lake" / "bronze" / "test")).to_pyarrow_table(columns=["op", "chunk"]).to_pylist()
    chunks = sorted({row["chunk"] for row in rows if row["op"] == "r"})
    return [(chunk, sum(row["op"] == "r" and row["chunk"] == chunk for row in rows)) for chunk in chunks]


def slowed_seconds(reason: str) -> float:
    return REGISTRY.get_sample_value("strandline_snapshot_slowed_seconds_total", {"reason": reason}) or 0.0


# scenario: N04
def test_a_rate_limit_holds_for_all_lanes_together(mongo_uri: str, database: Db, tmp_path: Path) -> None:
    """1,200 documents at 300 per second, in four chunks and two lanes: each lane reads 600 at 150 per second."""
    database.a.insert_many([{"_id": number} for number in range(1_200)])
    ctx = native(mongo_uri, database.name, tmp_path, snapshot_max_documents_per_second=300, snapshot_chunk_size=300)
    began = time.monotonic()
    state = CaptureState()
    result = run_capture(ctx, once=True, state=state)
    assert result.documents == 1_200
    assert time.monotonic() - began >= 1_200 / 300 - 1, "the last reply of a lane is not waited for"
    chunks = read_at(tmp_path)
    assert len(chunks) >= 4
    assert sum(documents for _, documents in chunks) == 1_200
    assert state.snapshot is not None
    assert state.snapshot().rate_limit == 300


def test_the_executors_of_spark_keep_the_limit_too(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    """One chunk, so that no wait between chunks has a part in it."""
    database.a.insert_many([{"_id": number} for number in range(400)])
    limits = {"snapshot_max_documents_per_second": 200, "snapshot_max_threads": 1}
    began = time.monotonic()
    ctx = spark_pipeline(spark, mongo_uri, database.name, tmp_path / "lake", **limits)
    state = CaptureState()
    assert run_capture(ctx, once=True, state=state).documents == 400
    assert time.monotonic() - began >= 400 / 200 - 1
    assert state.snapshot is not None
    seen = state.snapshot()
    assert (seen.chunks, seen.held_at) == (1, None)


@contextmanager
def occupied_tickets(uri: str, busy: Db) -> Iterator[None]:
    """Nine of ten read tickets are held by finds that the server does not end."""
    busy.hung.insert_one({"_id": 1})
    with MongoClient[dict[str, Any]](uri) as client, ThreadPoolExecutor(_TICKETS - 1) as pool:
        admin, point = client.admin, "waitInFindBeforeMakingBatch"
        admin.command({"setParameter": 1, "wiredTigerConcurrentReadTransactions": _TICKETS})
        admin.command({"configureFailPoint": point, "mode": "alwaysOn", "data": {"nss": f"{busy.name}.hung"}})
        finds = [pool.submit(client[busy.name].hung.find_one) for _ in range(_TICKETS - 1)]
        try:
            yield
        finally:
            admin.command({"configureFailPoint": point, "mode": "off"})
            for find in finds:
                find.result()
            admin.command({"setParameter": 1, "wiredTigerConcurrentReadTransactions": 128})


@pytest.fixture
def own_server() -> Iterator[EmbeddedMongod]:
    """A server whose parameters the test may change."""
    with EmbeddedMongod(set_parameters={"enableTestCommands": "1"}) as server:
        yield server


def await_slowed(running: Future[CaptureResult], state: CaptureState, *, slowed: bool) -> SnapshotNow:
    deadline = time.monotonic() + 60
    while state.snapshot is None or bool((seen := state.snapshot()).slowed_by) is not slowed:
        assert time.monotonic() < deadline
        assert not running.done(), running.result()
        time.sleep(0.1)
    return seen


# scenario: N04
def test_a_snapshot_waits_while_few_tickets_are_free(
    own_server: EmbeddedMongod, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = CaptureState()
    caplog.set_level(logging.INFO, "strandline.snapshot")
    before = slowed_seconds("tickets")
    with MongoClient[dict[str, Any]](own_server.uri) as mongo, ThreadPoolExecutor(1) as pool:
        mongo.shop.a.insert_many([{"_id": number} for number in range(10)])
        ctx = native(own_server.uri, "shop", tmp_path)
        with occupied_tickets(own_server.uri, mongo.busy):
            running = pool.submit(run_capture, ctx, once=True, state=state)
            seen = await_slowed(running, state, slowed=True)
            assert seen.slowed_by == {"tickets": "1 of 10 read tickets are free"}
            assert (seen.state, seen.chunks_done) == ("running", 0)
        assert running.result(timeout=60).documents == 10
    said = [message for message in caplog.messages if "slowed" in message]
    assert said[0].startswith("the snapshot is slowed: 1 of 10 read tickets are free (")
    assert re.fullmatch(r"the snapshot is no longer slowed, after \d+ s \(tickets\)", said[1])
    assert slowed_seconds("tickets") > before
    assert [len(said), read_at(tmp_path)] == [2, [(0, 10)]]


@pytest.mark.long
def test_one_lagging_secondary_of_two_is_load() -> None:
    with EmbeddedMongod(members=3, set_parameters={"enableTestCommands": "1"}) as server:
        client = open_client(ConnectionOptions(server.uri), raw=True)
        with closing(client), MongoClient[dict[str, Any]](server.uri, w=1) as mongo:
            probe, deadline = LoadProbe(client), time.monotonic() + 90
            assert reasons_to_slow(probe.read()) == {}
            host, port = min(mongo.secondaries)
            with MongoClient[dict[str, Any]](host, port, directConnection=True) as direct:
                direct.admin.command("configureFailPoint", "stopReplProducer", mode="alwaysOn")
            while reasons_to_slow(probe.read()).keys() != {"replication_lag"}:
                assert time.monotonic() < deadline, probe.read()
                mongo.shop.a.insert_one({})
                time.sleep(0.2)


def test_a_user_who_may_only_read_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with guarded_server(tmp_path, "pwd") as (server, root):
        uri = uri_of(server, "reader", "pwd")
        root.shop.a.insert_many([{"_id": number} for number in range(10)])
        root.admin.command("createUser", "reader", pwd="pwd", roles=[{"role": "read", "db": "shop"}])
        caplog.set_level(logging.INFO, "strandline.snapshot")
        with closing(open_client(ConnectionOptions(uri), raw=True)) as client:
            probe = LoadProbe(client)
            assert [probe.read(), probe.read()] == [SourceLoad()] * 2
        (said,) = caplog.messages
        assert "refuses replSetGetConfig, replSetGetStatus, serverStatus (role clusterMonitor)" in said
        assert run_capture(native(uri, "shop", tmp_path), once=True).documents == 10
