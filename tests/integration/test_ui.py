"""The web page and its API on a lake that a capture without Spark has written, with a real server as the source."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from lakehouse import settings_for
from processes import wait_until
from pymongo import MongoClient
from s3_server import free_port
from starlette.testclient import TestClient
from ui_lake import read, watched

from strandline.bronze.offsets import committed
from strandline.control.sources import state_of
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.io.telemetry.live_state import CaptureState
from strandline.io.telemetry.metrics_server import serve
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.lake_context import open_capture_without_spark
from strandline.model.query import Query
from strandline.model.table_schemas import bronze_table
from strandline.settings.configuration import Settings
from strandline.settings.output import MetricsSettings
from strandline.web.server import Access, application

Client = MongoClient[dict[str, Any]]
TOKEN = "a-token-of-some-length"
OFFSETS, SNAPSHOTS = "/connectors/test/offsets", "/connectors/test/snapshots"


@pytest.fixture(scope="module")
def captured(mongo_uri: str, mongo: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A lake with a snapshot of 20 documents and 5 updates."""
    shop = mongo["ui_pages"]
    shop["orders"].insert_many([{"_id": number} for number in range(20)])
    root = tmp_path_factory.mktemp("ui") / "lake"
    found = settings_for(mongo_uri, shop.name, root, engine="native", snapshot_max_threads=1)
    capture(found)
    shop["orders"].update_many({"_id": {"$lt": 5}}, {"$set": {"a": 1}})
    capture(found)
    yield found
    mongo.drop_database(shop.name)


@pytest.fixture
def settings(captured: Settings, tmp_path: Path) -> Settings:
    """The same lake in a folder of the test's own."""
    shutil.copytree(captured.lake.root or "", tmp_path / "lake")
    return captured.model_copy(update={"lake": captured.lake.model_copy(update={"root": str(tmp_path / "lake")})})


@pytest.fixture
def client(settings: Settings) -> Iterator[TestClient]:
    access = Access.of("127.0.0.1", 8081, api=True, known_token=None)
    headers = {"Authorization": f"Bearer {access.token}"}
    with TestClient(application(watched(settings), access, []), base_url="http://localhost", headers=headers) as client:
        yield client


def capture(settings: Settings) -> None:
    ctx = open_capture_without_spark(settings)
    assert ctx is not None
    run_capture(ctx, once=True)


def tables_of(settings: Settings) -> DeltaRsTables:
    return DeltaRsTables(settings.lake_location)


def test_the_calls_of_kip_875_write_the_rows_of_the_commands(client: TestClient, settings: Settings) -> None:
    assert client.get("/connectors").json() == ["test"]
    status = client.get("/connectors/test/status").json()
    assert (status["name"], status["type"], status["connector"]["state"]) == ("test", "source", "RUNNING")
    assert [task["state"] for task in status["tasks"]] == ["RUNNING"]
    (entry,) = client.get(OFFSETS).json()["offsets"]
    assert entry["partition"] == {"source": "test"}
    token, batch = entry["offset"]["resume_token"], entry["offset"]["batch"]

    body = {"offsets": [{"partition": {"source": "test"}, "offset": {"to": "1"}}]}
    for refused in (client.patch(OFFSETS, json=body), client.delete(OFFSETS)):
        assert (refused.status_code, refused.json()["error_code"]) == (400, 400)
        assert "source test is running" in refused.json()["message"]

    assert client.put("/connectors/test/pause?by=ana&why=lunch").status_code == 202
    paused = state_of(tables_of(settings), "test")
    assert (paused.state, paused.by, paused.why) == ("paused", "ana", "lunch")
    assert client.put("/connectors/test/resume").status_code == 202
    assert client.put("/connectors/test/stop").status_code == client.put("/connectors/test/stop").status_code == 204
    assert client.get("/connectors/test/status").json()["tasks"] == []
    assert state_of(tables_of(settings), "test").number == 3, "a repeated stop writes no row"

    planned = client.patch(f"{OFFSETS}?dry_run=true", json=body).json()["move"]
    assert (planned["direction"], planned["events"], planned["committed_batch"]) == ("back", 5, None)
    moved = client.patch(f"{OFFSETS}?by=ana&why=again", json=body)
    assert (moved.status_code, moved.json()["move"]["committed_batch"]) == (200, batch + 1)
    notes = Query(bronze_table("test")).select("operation_type", "after").where(("op", "=", "offset"))
    (note,) = tables_of(settings).query(notes)
    assert note["operation_type"] == "alter"
    assert '"by": "ana", "why": "again"' in note["after"]

    back = {"offsets": [{"partition": {"source": "test"}, "offset": {"resume_token": token}}]}
    assert client.patch(OFFSETS, json=back).json()["move"]["direction"] == "forward"
    assert "◆" in read(client, "/offsets")
    assert read(client, "/offsets").count('class="mark moved"') == 1

    assert client.delete(OFFSETS).status_code == client.delete(OFFSETS).status_code == 200
    assert client.get(OFFSETS).json() == {"offsets": []}


def test_a_capture_acts_upon_what_the_api_sent(client: TestClient, settings: Settings) -> None:
    (snapshot,) = client.get(SNAPSHOTS).json()
    assert (snapshot["state"], snapshot["documents"]) == ("completed", 20)
    assert client.post(f"{SNAPSHOTS}?by=ana", json={"data-collections": [r".*\.orders"]}).status_code == 202
    capture(settings)
    acted = Query(bronze_table("test")).select("operation_type").where(("op", "=", "signal"))
    assert len(tables_of(settings).query(acted)) == 1
    assert [each["documents"] for each in client.get(SNAPSHOTS).json()] == [20, 20]


def test_a_running_capture_opens_new_connections_and_continues(
    client: TestClient, settings: Settings, mongo: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "strandline.capture")
    quick = settings.capture.model_copy(update={"heartbeat_interval_ms": 100})
    ctx = open_capture_without_spark(settings.model_copy(update={"capture": quick}))
    assert ctx is not None
    stop, state = threading.Event(), CaptureState()
    before = committed(ctx.tables, bronze_table("test"))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_capture, ctx, once=False, stop=stop, state=state)
        try:
            wait_until(lambda: state.is_bronze_open, seconds=60)
            assert client.post("/connectors/test/restart?by=ana").status_code == 204
            wait_until(lambda: "asked for a restart" in caplog.text, seconds=60)
            mongo["ui_pages"]["orders"].insert_one({"_id": "after the restart"})
            events = Query(bronze_table("test")).select("key").where(("op", "=", "c"), ("batch", ">", before.batch))
            wait_until(lambda: len(ctx.tables.query(events)) == 1, seconds=60)
        finally:
            stop.set()
    mongo["ui_pages"]["orders"].delete_one({"_id": "after the restart"})
    assert running.result().events == 1


def test_a_wrong_target_writes_nothing(client: TestClient, settings: Settings) -> None:
    client.put("/connectors/test/stop")
    before = tables_of(settings).version(bronze_table("test"))
    for target in ("next tuesday", "2999-01-01", '{"_data": "zz"}'):
        body = {"offsets": [{"partition": {"source": "test"}, "offset": {"to": target}}]}
        assert client.patch(OFFSETS, json=body).status_code == 400, target
    assert tables_of(settings).version(bronze_table("test")) == before


def test_every_page_shows_a_captured_source(client: TestClient) -> None:
    text = read(client, "/")
    assert "running" in text
    assert "25 rows landed in bronze" in text or "rows landed in bronze in the last 30 minutes" in text
    text = read(client, "/snapshots")
    assert "1 of 1" in text
    assert "■" in text
    assert "Newest positions" in read(client, "/offsets")
    assert "bronze.test" in read(client, "/maintenance")
    client.put("/connectors/test/pause?why=noon")
    deadline = time.monotonic() + 60
    while "paused" not in (text := read(client, "/")):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert "set by api" in text


def test_the_lag_is_live_where_the_capture_serves_its_state(settings: Settings) -> None:
    port = free_port()
    serve(port, "127.0.0.1", {"source": "test"}, CaptureState())
    live = settings.model_copy(update={"metrics": MetricsSettings(port=port)})
    access = Access.of("127.0.0.1", 8081, api=False, known_token=None)
    with TestClient(application(watched(live), access, []), base_url="http://localhost") as client:
        assert "live, from the running capture" in read(client, "/")
