"""What Prometheus is told: by the process that captures, and by the tables."""

from __future__ import annotations

import re
import socket
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from lakehouse import pipeline
from prometheus_client.parser import text_string_to_metric_families
from pymongo.database import Database
from pyspark.sql import SparkSession

from pipelines.errors import ConfigurationError
from pipelines.io.metrics import serve
from pipelines.jobs.capture.job import run_capture
from pipelines.jobs.operations.metrics import exposition
from pipelines.jobs.silver.job import run_silver

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"

Sample = tuple[str, frozenset[tuple[str, str]]]


def samples(text: str) -> dict[Sample, float]:
    families = text_string_to_metric_families(text)
    return {(each.name, frozenset(each.labels.items())): each.value for family in families for each in family.samples}


def sample(name: str, **labels: str) -> Sample:
    return f"strandline_{name}", frozenset(labels.items())


@pytest.fixture
def port() -> int:
    """A free one of this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        found: int = free.getsockname()[1]
    return found


# scenario: R08, P06
def test_a_capture_counts_and_the_tables_tell_the_same(
    spark: SparkSession, mongo_uri: str, database: Database[dict[str, Any]], tmp_path: Path, port: int
) -> None:
    serve(port, "127.0.0.1")
    with pytest.raises(ConfigurationError, match=rf"127\.0\.0\.1:{port} .* → choose another metrics\.port"):
        serve(port, "127.0.0.1")

    def counted() -> dict[Sample, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            return samples(answer.read().decode())

    ctx = pipeline(
        spark,
        mongo_uri,
        database.name,
        tmp_path / "lake",
        cursor_oversize_handling_mode="skip",
        cursor_oversize_skip_threshold=99,
    )
    before = counted()
    database.a.insert_many([{"_id": number} for number in range(3)])
    run_capture(ctx, once=True)
    database.a.insert_one({"_id": 3, "heavy": "x" * 100})
    database.a.delete_one({"_id": 0})
    run_capture(ctx, once=True)
    run_silver(ctx)
    now = counted()

    def more(name: str, **labels: str) -> float:
        return now[sample(name, **labels)] - before.get(sample(name, **labels), 0.0)

    assert (more("snapshot_documents_total"), more("events_total")) == (3, 2)
    assert more("commit_seconds_count") >= 3
    assert 0 <= now[sample("behind_source_seconds")] < 60
    assert abs(now[sample("last_event_timestamp_seconds")] - time.time()) < 60
    assert more("silver_rows_total", table="silver.a", done="inserted") == 4, (
        "a document that was left out is a row without values"
    )
    kip = "records_skipped", "failures_logged", "deadletterqueue_records_produced", "record_failures"
    assert [more(f"{name}_total") for name in kip] == [1, 1, 1, 1]
    assert (more("deadletterqueue_produce_failures_total"), more("retries_total")) == (0, 0)
    assert abs(now[sample("last_failure_timestamp_seconds")] - time.time()) < 60

    told = samples(exposition(ctx))
    assert told[sample("source_state", source="test", state="running")] == 1
    assert told[sample("batch", source="test")] >= 3
    assert told[sample("last_event_timestamp_seconds", source="test")] == now[sample("last_event_timestamp_seconds")]
    assert told[sample("position_age_seconds", source="test")] >= 0
    expected = {"live": 3, "tombstone": 1, "rescued": 0, "waiting": 0, "stale": 1}
    assert {kind: told[sample("silver_table_rows", table="silver.a", kind=kind)] for kind in expected} == expected
    assert told[sample("total_records_skipped")] == 1
    assert told[sample("deadletterqueue_records_produced")] == 1

    described = set(re.findall(r"^\| `(strandline_\w+)`", DOCUMENT.read_text(encoding="utf-8"), flags=re.MULTILINE))
    # the headroom is shown once an oplog has rolled
    names = {name for name, _ in (*now, *told) if name.startswith("strandline_")}
    shown = {name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count") for name in names}
    assert described - {"strandline_oplog_headroom_seconds"} == shown - {"strandline_oplog_headroom_seconds"}
