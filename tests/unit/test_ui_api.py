"""The API on a lake without a source: each call writes the row of its command. Positions: integration/test_ui.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from openapi_spec_validator import validate
from starlette.testclient import TestClient
from ui_lake import watched

from strandline import __version__
from strandline.control.sources import RestartRequested, SourceStateMonitor, set_state, state_of
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.model.query import Query
from strandline.model.table_schemas import SIGNALS
from strandline.model.tables import Lake
from strandline.settings.configuration import Settings
from strandline.web.api import CALLS, description
from strandline.web.connector_config import connector_config
from strandline.web.server import Access, application

OFFSETS, SNAPSHOTS, SENT = (f"/connectors/test/{name}" for name in ("offsets", "snapshots", "signals"))


@pytest.fixture
def tables(tmp_path: Path) -> DeltaRsTables:
    return DeltaRsTables(Lake(root=str(tmp_path)))


@pytest.fixture
def client(tables: DeltaRsTables) -> Iterator[TestClient]:
    settings = Settings(
        source={"name": "test"},  # type: ignore[arg-type]  # why: pydantic builds the section
        lake={"root": tables.lake.root},  # type: ignore[arg-type]  # why: as above
    )
    access = Access.of("127.0.0.1", 8081, api=True, known_token=None)
    headers = {"Authorization": f"Bearer {access.token}"}
    with TestClient(application(watched(settings), access, []), base_url="http://localhost", headers=headers) as client:
        yield client


def test_the_api_returns_the_state_of_a_source(client: TestClient, tables: DeltaRsTables) -> None:
    assert client.get("/connectors").json() == ["test"]
    status = client.get("/connectors/test/status").json()
    assert (status["name"], status["type"], status["connector"]["state"]) == ("test", "source", "RUNNING")
    assert [task["state"] for task in status["tasks"]] == ["UNASSIGNED"], "an operator wants it, and no process runs"
    assert status["process"] is None
    paused = client.put("/connectors/test/pause?by=ana&why=lunch")
    assert (paused.status_code, paused.content) == (202, b"")
    found = state_of(tables, "test")
    assert (found.state, found.by, found.why) == ("paused", "ana", "lunch")
    assert client.put("/connectors/test/resume").status_code == 202
    assert client.put("/connectors/test/stop").status_code == client.put("/connectors/test/stop").status_code == 204
    assert state_of(tables, "test").number == 3, "a repeated stop writes no row"
    assert state_of(tables, "test").by == "api"
    status = client.get("/connectors/test/status").json()
    assert (status["connector"]["state"], status["tasks"]) == ("STOPPED", [])


def test_a_restart_is_a_row_that_a_running_capture_sees_once(client: TestClient, tables: DeltaRsTables) -> None:
    monitor = SourceStateMonitor(tables, "test", 0)
    assert monitor.state() == "running"
    assert (client.post("/connectors/test/restart?by=ana&why=stuck").status_code, monitor.state()) == (204, "running")
    order = state_of(tables, "test")
    assert (order.state, order.by, order.why, order.number) == ("running", "ana", "stuck", 1)
    with pytest.raises(RestartRequested, match="an operator asked for a restart at 20"):
        monitor.raise_restart()
    begun_again = SourceStateMonitor(tables, "test", 0)
    begun_again.state()
    begun_again.raise_restart()
    answer = client.post("/connectors/test/restart?includeTasks=true&onlyFailed=true")
    assert (answer.status_code, answer.json()["connector"]["state"]) == (202, "RUNNING")
    (task,) = client.get("/connectors/test/tasks").json()
    assert task["id"] == {"connector": "test", "task": 0}
    assert client.get("/connectors/test/tasks/0/status").json()["state"] == "UNASSIGNED"
    assert client.post("/connectors/test/tasks/0/restart").status_code == 204
    client.put("/connectors/test/pause")
    monitor.state()
    refused = client.post("/connectors/test/restart")
    assert (refused.status_code, refused.json()["message"]) == (400, "source test is paused → resume it")
    assert state_of(tables, "test").state == "paused"


def test_a_stop_and_a_start_that_a_process_did_not_see_are_no_restart(tables: DeltaRsTables) -> None:
    monitor = SourceStateMonitor(tables, "test", 0)
    for state in ("paused", "running"):
        set_state(tables, "test", state, by="ops", why=None)
        monitor.state()
    for state in ("stopped", "running"):
        set_state(tables, "test", state, by="ops", why=None)
    monitor.state()
    monitor.raise_restart()


@pytest.mark.parametrize("host", ["x/static/?", "::1%x?", "localhost"])
def test_a_path_in_the_header_host_does_not_replace_the_token(client: TestClient, host: str) -> None:
    """Starlette before 1.0.1, which some of Databricks' runtimes have, parses the path of its URL from this header."""
    headers = {"host": host, "authorization": ""}
    assert client.put("/connectors/test/stop", headers=headers).status_code in (400, 401)


def test_a_source_without_an_offset(client: TestClient) -> None:
    assert client.get(OFFSETS).json() == {"offsets": []}
    assert client.get(SNAPSHOTS).json() == []
    assert client.delete(OFFSETS).status_code == 400, "it is not stopped"
    client.put("/connectors/test/stop")
    assert client.delete(OFFSETS).status_code == 200
    refused = client.patch(OFFSETS, json={"offsets": [{"partition": {"source": "test"}, "offset": {"to": "now"}}]})
    assert (refused.status_code, "has no offset yet" in refused.json()["message"]) == (400, True)


def test_snapshots_and_signals_are_rows_of_the_table(client: TestClient, tables: DeltaRsTables) -> None:
    assert client.get(SENT).json() == []
    asked = client.post(f"{SNAPSHOTS}?by=ana", json={"data-collections": [r"shop\.orders"], "type": "blocking"})
    assert (asked.status_code, asked.json()["type"], asked.json()["by"]) == (202, "execute-snapshot", "ana")
    for verb in ("pause", "resume", "stop"):
        assert client.put(f"{SNAPSHOTS}/{verb}").status_code == 202
    assert client.put(f"{SNAPSHOTS}/stop", json={"data-collections": [r"shop\.orders"]}).status_code == 202
    assert client.post(SENT, json={"type": "log", "data": {"message": "hello"}}).status_code == 202
    newest, *older = client.get(SENT).json()
    assert (newest["type"], json.loads(newest["data"]), len(older)) == ("log", {"message": "hello"}, 5)
    assert len(tables.query(Query(SIGNALS).select("id"))) == 6
    for body in ({"type": "dance"}, {"type": "log", "data": "x"}, {"typ": "log"}, None):
        assert client.post(SENT, json=body).status_code == 400
    assert client.post(SNAPSHOTS, json={"data-collections": []}).status_code == 400
    assert len(tables.query(Query(SIGNALS).select("id"))) == 6


def test_wrong_requests_are_refused(client: TestClient, tables: DeltaRsTables) -> None:
    assert client.get("/connectors/other/status").json()["error_code"] == 404
    assert client.get("/connectors/test/nothing").status_code == 404
    client.put("/connectors/test/stop")
    partition = {"source": "test"}
    bodies = [
        {},
        {"offsets": []},
        {"offsets": [{"partition": {"source": "x"}, "offset": {"to": "now"}}]},
        {"offsets": [{"partition": partition, "offset": {}}]},
        {"offsets": [{"partition": partition, "offset": {"to": 5}}]},
        {"offsets": [{"partition": partition}]},
        {"offsets": [{"partition": partition, "offset": {"to": "now"}}] * 2},
        [],
        "x",
    ]
    for body in bodies:
        assert client.patch(OFFSETS, json=body).status_code == 400, body
    assert client.patch(OFFSETS, content="{").status_code == 400
    assert client.patch(OFFSETS, content="[" * 100_000).status_code == 400
    assert client.patch(OFFSETS, content=b"x" * 1_100_000).status_code == 413
    assert client.put("/connectors/test/pause?forse=true").status_code == 400
    assert client.put("/connectors/test/pause?force=maybe").status_code == 400
    set_state(tables, "test", "deleted", by="ana", why=None)
    assert client.get("/connectors/test/status").status_code == 404
    assert client.get("/connectors").json() == []


def test_every_call_needs_the_token_in_a_header(client: TestClient) -> None:
    token = client.headers["authorization"].partition(" ")[2]
    client.cookies.set("strandline_page_8081", token)
    for call in CALLS:
        path = call.path.replace("{source}", "test")
        for headers in ({"Authorization": ""}, {"Authorization": "Bearer x"}, {"Authorization": f"Basic {token}"}):
            answer = client.request(call.method, path, headers=headers)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer"), path
    assert client.get("/openapi.json", headers={"Authorization": ""}).status_code == 401
    assert client.get("/", headers={"Authorization": ""}).status_code == 200, "the page is on this machine only"


def test_the_description_is_valid_and_names_every_call(client: TestClient) -> None:
    described = client.get("/openapi.json").json()
    assert described == description()
    validate(described)
    assert {(method.upper(), path) for path, found in described["paths"].items() for method in found} == {
        (call.method, call.path) for call in CALLS
    }


def test_the_answers_have_the_form_of_kafka_connects(client: TestClient) -> None:
    assert client.get("/connectors").json() == ["test"]
    connector, status = client.get("/connectors/test").json(), client.get("/connectors/test/status").json()
    assert (connector["name"], connector["type"]) == ("test", "source")
    assert connector["tasks"] == [{"connector": "test", "task": 0}]
    assert connector["config"]["name"] == "test"
    assert connector["config"]["lake.schema"] == "strandline"
    assert all(isinstance(value, str) for value in connector["config"].values())
    assert client.get("/connectors/test/config").json() == connector["config"]
    expanded = client.get("/connectors?expand=status&expand=info").json()
    assert expanded == {"test": {"status": status, "info": connector}}
    assert client.get("/connectors?expand=status").json() == {"test": {"status": status}}
    client.put("/connectors/test/stop")
    assert client.get("/connectors/test").json()["tasks"] == []
    assert client.get("/connectors/other").status_code == client.get("/connectors/other/config").status_code == 404


@pytest.mark.parametrize(
    ("headers", "kind"),
    [
        ({"Accept": "application/json"}, "application/json"),
        ({"Accept": "application/json", "Authorization": ""}, "application/json"),
        ({}, "text/html; charset=utf-8"),
        ({"Authorization": ""}, "text/html; charset=utf-8"),
        ({"Accept": "text/html,application/json;q=0.9"}, "text/html; charset=utf-8"),
    ],
)
def test_the_root_has_a_version_for_programs_and_a_page_for_browsers(
    client: TestClient, headers: dict[str, str], kind: str
) -> None:
    answer = client.get("/", headers=headers)
    assert answer.headers["content-type"] == kind
    if kind == "application/json":
        assert answer.json() == {"version": __version__, "commit": "unknown", "kafka_cluster_id": None}


def test_a_configuration_shows_no_secret() -> None:
    secret = "hunter2-hunter2-hunter2"
    settings = Settings.model_validate(
        {
            "source": {"name": "test", "uri": f"mongodb://ana:{secret}@h/?authSource=admin"},
            "capture": {"field_hash_salt": secret},
            "spark": {"conf": {"spark.hadoop.fs.s3a.secret.key": secret}},
            "telemetry": {"endpoint": f"http://ana:{secret}@collector:4318"},
            "lineage": {"url": f"http://marquez:5000/?api_key={secret}"},
            "ui": {"token": secret},
        }
    )
    shown = connector_config(settings)
    assert secret not in json.dumps(shown)
    masked = {"source.uri", "capture.field_hash_salt", "spark.conf", "ui.token"}
    assert {name for name, value in shown.items() if value == "********"} == masked
    assert shown["telemetry.endpoint"] == "http://********@collector:4318"
    assert shown["lake.schema"] == "strandline"
