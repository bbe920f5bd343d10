"""The lag is computed when it is scraped: it grows while nothing can land."""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from lakehouse import settings_for
from prometheus_client.parser import text_string_to_metric_families
from pymongo import MongoClient
from pymongo.errors import AutoReconnect
from s3_server import free_port

from strandline.io.telemetry.live_state import CaptureState
from strandline.io.telemetry.metrics_server import serve
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.capture.stream_loop import CaptureResult
from strandline.jobs.lake_context import CaptureContext, open_capture_without_spark
from strandline.jobs.snapshot.send_signal import send_signal
from strandline.source.mongod import EmbeddedMongod


def scraped(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {each.name: each.value for family in families for each in family.samples}


def state(port: int) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/state") as answer:
        found: dict[str, Any] = json.loads(answer.read())
        return found


def await_state(port: int, wanted: Callable[[dict[str, Any]], bool]) -> None:
    deadline = time.monotonic() + 60
    while not wanted(seen := state(port)):
        assert time.monotonic() < deadline, seen
        time.sleep(0.2)


def await_counts(port: int, name: str, before: dict[str, float]) -> None:
    deadline = time.monotonic() + 60
    while scraped(port)[name] <= before[name]:
        assert time.monotonic() < deadline, name
        time.sleep(0.2)


def lag(port: int) -> float | None:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        families = text_string_to_metric_families(answer.read().decode())
    samples = [each for family in families for each in family.samples]
    assert {each.labels["source"] for each in samples} == {"test"}
    return next((each.value for each in samples if each.name == "strandline_behind_source_seconds"), None)


@contextmanager
def capturing(ctx: CaptureContext, observer: CaptureState) -> Iterator[Future[CaptureResult]]:
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_capture, ctx, stop=stop, state=observer)
        try:
            yield running
        finally:
            stop.set()


def await_lag(port: int, low: float, high: float) -> None:
    deadline = time.monotonic() + 60
    while (seen := lag(port)) is None or not low <= seen <= high:
        assert time.monotonic() < deadline, seen
        time.sleep(0.2)


# scenario: R08
def test_the_lag_grows_while_the_source_is_frozen_and_while_a_snapshot_holds_the_stream(tmp_path: Path) -> None:
    port = free_port()
    observer = CaptureState()
    serve(port, "127.0.0.1", {"source": "test"}, observer)
    with EmbeddedMongod() as server, MongoClient[dict[str, Any]](server.uri) as mongo:
        database = mongo["frozen"]
        database.a.insert_one({"_id": 1})
        opened = open_capture_without_spark(
            settings_for(
                server.uri,
                database.name,
                tmp_path,
                engine="native",
                snapshot_delay_ms=4_000,
                signal_poll_interval_ms=200,
            )
        )
        assert opened is not None
        ctx = opened.for_capture()
        with capturing(ctx, observer) as running:
            await_lag(port, 0, 1.5)
            server.pause()
            try:
                await_lag(port, 3, 10)
            finally:
                server.resume()
            await_lag(port, 0, 1.5)
            send_signal(ctx, "execute-snapshot", {"data-collections": [".*"], "type": "blocking"}, by="test")
            await_lag(port, 3, 10)
            await_lag(port, 0, 1.5)
            before = state(port)
            with mongo.start_session() as session, session.start_transaction():
                database.a.update_one({"_id": 1}, {"$set": {"n": 1}}, session=session)
                database.a.insert_one({"_id": 2}, session=session)
            await_state(port, lambda now: now["stream"]["last_event"] != before["stream"]["last_event"])
            shown = state(port)["stream"]
            assert (shown["last_event"]["operation"], shown["last_event"]["collection"]) == ("insert", "frozen.a")
            assert re.fullmatch(r"[0-9a-f]{32}:\d+", shown["last_transaction"])
            assert shown["captured_collections"] == ["frozen.a"]
            assert shown["connected"]
            counts = scraped(port)
            with suppress(AutoReconnect):
                mongo.admin.command("replSetStepDown", 1, force=True)
            await_counts(port, "strandline_primary_elections_total", counts)
            await_state(port, lambda now: now["stream"]["connected"])
            snapshot = state(port)["snapshot"]
            assert (snapshot["kind"], snapshot["state"], snapshot["documents"]) == (
                "blocking",
                "completed",
                {"frozen.a": 1},
            )
            assert "lower" not in snapshot["chunk"], "a bound is an `_id`"
        assert running.result().documents == 2
