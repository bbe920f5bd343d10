"""Traces and lineage: what is sent to a real server, what a server that is away costs, and that off means off."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from collector import attributes, collector, nobody
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from processes import wait_until
from prometheus_client import REGISTRY

from strandline.commands.telemetry import telemetry
from strandline.errors import ConfigurationError, ContractError, QualityGateClosed
from strandline.io.tables.lineage import LineageRun, tell_lineage_to, told_run
from strandline.io.telemetry import lineage_sender, otlp_tracer
from strandline.io.telemetry.lineage_sender import LineageSender, client_of
from strandline.io.telemetry.tracing import annotate, is_traced, span
from strandline.jobs.parallel_map import parallel_map
from strandline.model.lineage import Job
from strandline.settings.configuration import Settings

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _no_variables_of_the_libraries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # the OpenLineage client reads a file there
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")


def settings_for(url: str | None, **lineage: Any) -> Settings:
    return Settings(
        telemetry={"traces": True, "endpoint": url},  # type: ignore[arg-type]  # why: pydantic builds the section
        lineage={"enabled": True, "url": url, **lineage},  # type: ignore[arg-type]  # why: as above
    )


def traced(url: str | None) -> Settings:
    return Settings(telemetry={"traces": True, "endpoint": url})  # type: ignore[arg-type]  # why: as above


def lineage_of(url: str | None, **more: Any) -> Settings:
    return Settings(lineage={"enabled": True, "url": url, **more})  # type: ignore[arg-type]  # why: as above


def failures(kind: str) -> float:
    return REGISTRY.get_sample_value("strandline_telemetry_failures_total", {"kind": kind}) or 0.0


def test_spans_have_their_attributes_and_the_span_around_them_as_parent() -> None:
    with collector() as got:
        with telemetry(traced(got.url)):
            assert is_traced()
            with span("run", source="shop", none=None), ThreadPoolExecutor(2) as pool:

                def work(number: int) -> None:
                    with span("table", number=number):
                        annotate(rows=number * 10)

                parallel_map(pool, work, [1, 2, 3])
        assert not is_traced()
    (run,) = got.spans("run")
    assert attributes(run) == {"source": "shop"}
    assert run.parent_span_id == b""
    tables = got.spans("table")
    assert {(found.trace_id, found.parent_span_id) for found in tables} == {(run.trace_id, run.span_id)}
    assert sorted(attributes(found)["rows"] for found in tables) == [10, 20, 30]
    (resource,) = {export.resource_spans[0].resource.SerializeToString(): export for export in got.exports()}.values()
    found = attributes(resource.resource_spans[0].resource)
    assert (found["service.name"], found["source"]) == ("strandline", "mongo")


def test_the_variables_of_the_library_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as got:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", got.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=abc")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "orders")
        with telemetry(traced(None)), span("run"):
            pass
    assert got.requests[0][1]["api-key"] == "abc"
    assert attributes(got.exports()[0].resource_spans[0].resource)["service.name"] == "orders"


def fail(error: Exception) -> None:
    with pytest.raises(type(error)), span("work"), told_run(LineageRun(Job("work", "BUILD"))):
        raise error


@pytest.mark.parametrize(
    ("error", "show_keys", "text"),
    [
        (ContractError("no table", next_step="strandline capture"), False, "no table → strandline capture"),
        (ValueError("a document holds 's3cret'"), False, "a document holds '…'"),
        (ContractError("document s3cret is too large"), True, "ContractError"),
        (QualityGateClosed("newest s3cret"), False, "QualityGateClosed"),
    ],
    ids=["own", "foreign", "with keys", "gate"],
)
def test_an_error_is_one_line_without_values(error: Exception, show_keys: bool, text: str) -> None:
    with collector() as got:
        settings = settings_for(got.url)
        logged = settings.logging.model_copy(update={"show_keys": show_keys})
        with telemetry(settings.model_copy(update={"logging": logged})):
            fail(error)
    (found,) = got.spans()
    assert (found.status.code, found.status.message, list(found.events)) == (Status.STATUS_CODE_ERROR, text, [])
    start, failed = got.events()
    assert (start["eventType"], failed["eventType"]) == ("START", "FAIL")
    assert failed["run"]["facets"]["errorMessage"]["message"] == text
    assert not any(b"s3cret" in body for _, _, body in got.requests)


def test_lineage_is_sent_in_order_under_its_namespace_with_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "abc")
    with collector() as got, telemetry(lineage_of(got.url, namespace="prod")):
        for number in range(20):
            with told_run(LineageRun(Job(f"job{number}", "BUILD"))):
                pass
    events = [(event["job"]["name"], event["eventType"]) for event in got.events()]
    assert events == [(f"job{number}", state) for number in range(20) for state in ("START", "COMPLETE")]
    assert {event["job"]["namespace"] for event in got.events()} == {"prod"}
    assert {headers["Authorization"] for _, headers, _ in got.requests} == {"Bearer abc"}


def test_the_client_of_the_library_may_be_configured_by_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as got:
        monkeypatch.setenv("OPENLINEAGE_URL", got.url)
        monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "team")
        for name in ("TYPE", "URL"):  # the library sets them
            monkeypatch.setenv(f"OPENLINEAGE__TRANSPORT__TRANSPORTS__DEFAULT_HTTP__{name}", "")
        with telemetry(lineage_of(None)):
            LineageRun(Job("job", "BUILD")).tell("START")
    assert [event["job"]["namespace"] for event in got.events()] == ["team"]


def test_lineage_without_a_receiver_is_refused() -> None:
    with (
        pytest.raises(ConfigurationError, match=r"nothing names a receiver → set lineage\.url"),
        telemetry(lineage_of(None)),
    ):
        pass


@pytest.mark.parametrize(
    ("settings", "module", "package", "extra"),
    [
        (traced(None), "strandline.io.telemetry.otlp_tracer", "opentelemetry", "otel"),
        (lineage_of(None), "strandline.io.telemetry.lineage_sender", "openlineage", "openlineage"),
    ],
    ids=["traces", "lineage"],
)
def test_a_missing_package_is_one_line(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, module: str, package: str, extra: str
) -> None:
    monkeypatch.delitem(sys.modules, module, raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)
    with (
        pytest.raises(ConfigurationError, match=rf"{package}, which is not installed → .*\[{extra}\]"),
        telemetry(settings),
    ):
        pass


def _flush_within(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (otlp_tracer, lineage_sender):
        monkeypatch.setattr(module, "FLUSH_SECONDS", seconds)


@pytest.mark.parametrize("kind", ["traces", "lineage"])
@pytest.mark.parametrize("status", [None, 400], ids=["away", "refuses"])
def test_a_server_that_does_not_accept_costs_one_line(
    kind: str, status: int | None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    _flush_within(1.0, monkeypatch)
    before = failures(kind)
    with collector(status or 200) as got, caplog.at_level(logging.INFO):
        url = (nobody() if status is None else got.url).replace("://", "://user:s3cret@")
        with telemetry(traced(url) if kind == "traces" else lineage_of(url)):
            began = time.monotonic()
            for _ in range(50):
                with span("work"), told_run(LineageRun(Job("job", "BUILD"))):
                    pass
            assert time.monotonic() - began < 3, "work does not wait for it"
    assert failures(kind) > before
    (line,) = [record.getMessage() for record in caplog.records if record.name == "strandline.telemetry"]
    assert line.startswith(f"delivery of {kind} failed: ")
    assert "400" in line if status else "refused" in line
    assert "s3cret" not in line


def test_a_server_that_never_answers_ends_in_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A socket that listens and accepts nobody."""
    _flush_within(0.3, monkeypatch)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = settings_for(f"http://127.0.0.1:{silent.getsockname()[1]}")
        with telemetry(settings):
            with span("work"), told_run(LineageRun(Job("job", "BUILD"))):
                pass
            began = time.monotonic()
        assert time.monotonic() - began < 4
    for kind in ("traces", "lineage"):  # what was still on its way fails here, and not within another test
        wait_until(lambda kind=kind: f"delivery of {kind} failed" in caplog.text, kind, seconds=30)


def test_a_full_queue_of_lineage_drops_and_counts(caplog: pytest.LogCaptureFixture) -> None:
    before = failures("lineage")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        sender = LineageSender(client_of(f"http://127.0.0.1:{silent.getsockname()[1]}"), "test")
        tell_lineage_to(sender)
        try:
            for _ in range(1_010):
                LineageRun(Job("job", "BUILD")).tell("START")
        finally:
            tell_lineage_to(None)
    wait_until(lambda: "delivery of lineage failed" in caplog.text, seconds=30)  # not within another test
    assert failures("lineage") - before >= 9
    assert [line for line in caplog.messages if "1000 events wait" in line]


_OFF = """
import sys
from strandline.commands.telemetry import telemetry
from strandline.settings.configuration import Settings
import strandline.cli
with telemetry(Settings()):
    pass
print(sorted({name.partition(".")[0] for name in sys.modules} & {"opentelemetry", "openlineage"}))
"""


def test_with_telemetry_off_no_library_of_it_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", _OFF], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
