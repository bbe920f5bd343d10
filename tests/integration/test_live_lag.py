"""The lag is computed when it is scraped: it grows while nothing can land."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lakehouse import settings_for
from prometheus_client.parser import text_string_to_metric_families
from pymongo import MongoClient
from s3_server import free_port

from pipelines.io.metrics import serve
from pipelines.jobs.capture.job import run_capture
from pipelines.jobs.capture.stream_loop import CaptureResult
from pipelines.jobs.lake_context import CaptureContext, open_capture_without_spark
from pipelines.jobs.snapshot.send_signal import send_signal
from pipelines.source.mongod import EmbeddedMongod


def lag(port: int) -> float | None:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        families = text_string_to_metric_families(answer.read().decode())
    samples = [each for family in families for each in family.samples]
    assert {each.labels["source"] for each in samples} == {"test"}
    return next((each.value for each in samples if each.name == "strandline_behind_source_seconds"), None)


@contextmanager
def capturing(ctx: CaptureContext) -> Iterator[Future[CaptureResult]]:
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_capture, ctx, stop=stop)
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
    serve(port, "127.0.0.1", {"source": "test"})
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
        with capturing(ctx) as running:
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
        assert running.result().documents == 2
