"""A capture ends within seconds although MongoDB does not answer."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from lakehouse import settings_for
from pymongo import MongoClient
from pymongo.database import Database
from stream_reading import failing, needs_failpoints

from strandline.control.sources import set_state
from strandline.errors import RetriableError
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.lake_context import open_capture_without_spark
from strandline.model.query import Query
from strandline.model.table_schemas import bronze_table
from strandline.source.mongod import EmbeddedMongod
from strandline.source.unreachable import wait_reason

Db = Database[dict[str, Any]]


@needs_failpoints
@pytest.mark.parametrize("told", ["signal", "strandline stop"])
def test_a_capture_ends_within_seconds_while_the_source_blocks_the_read_of_a_chunk(
    mongo_uri: str,
    mongo: MongoClient[Any],
    database: Db,
    tmp_path: Path,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("strandline.source.read_watch._TELL_SECONDS", 2.0)
    ctx = open_capture_without_spark(settings_for(mongo_uri, database.name, tmp_path))
    assert ctx is not None
    database.a.insert_many([{"_id": number} for number in range(10)])
    stop, ended = threading.Event(), threading.Event()

    def capture() -> None:
        with suppress(RetriableError):
            run_capture(ctx, stop=stop)
        ended.set()

    with failing(mongo, "find", "alwaysOn", blockConnection=True, blockTimeMS=20_000):
        threading.Thread(target=capture, daemon=True).start()
        time.sleep(6)
        assert not ended.is_set()
        if told == "signal":
            stop.set()
        else:
            set_state(ctx.tables, "test", "stopped", by="ops", why=None)
        assert ended.wait(12), "before the server would have answered"
    begin = f"reading chunk 0 of {database.name}.a: no end after "
    assert any("the server answers other commands" in text for text in caplog.messages if text.startswith(begin))
    if told == "signal":
        assert run_capture(ctx, once=True).documents == 10, "the next run reads the chunk"
        rows = Query(bronze_table("test")).where(("op", "=", "r")).aggregate(rows=("count", "op"))
        assert ctx.tables.query(rows)[0]["rows"] == 10


@pytest.mark.long
def test_a_wait_for_a_majority_that_confirms_nothing_names_it() -> None:
    server = EmbeddedMongod(members=3, set_parameters={"enableTestCommands": "1"})
    with server, MongoClient[dict[str, Any]](server.uri, w=1) as mongo:
        mongo.shop.a.insert_one({})
        assert wait_reason(mongo).startswith("the server answers other commands")
        for host, port in mongo.secondaries:
            with MongoClient[dict[str, Any]](host, port, directConnection=True) as direct:
                direct.admin.command("configureFailPoint", "stopReplProducer", mode="alwaysOn")
        deadline = time.monotonic() + 60
        while "the majority of the replica set has confirmed no write for" not in (reason := wait_reason(mongo)):
            assert time.monotonic() < deadline, reason
            mongo.shop.a.insert_one({})
            time.sleep(0.5)
