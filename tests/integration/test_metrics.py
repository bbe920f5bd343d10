"""What Prometheus is told: by the process that captures, and by the tables."""

from __future__ import annotations

import re
import socket
import time
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import bson
import pytest
from bson.raw_bson import RawBSONDocument
from lakehouse import pipeline
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families
from pymongo import MongoClient
from pymongo.database import Database
from pyspark.sql import SparkSession

from strandline.errors import ConfigurationError, ContractError
from strandline.io.telemetry.live_state import CaptureState
from strandline.io.telemetry.metrics_server import serve
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.operations.metrics import exposition
from strandline.jobs.silver.run_silver import run_silver

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"

Sample = tuple[str, frozenset[tuple[str, str]]]


def samples(text: str) -> dict[Sample, float]:
    families = text_string_to_metric_families(text)
    return {(each.name, frozenset(each.labels.items())): each.value for family in families for each in family.samples}


def sample(name: str, **labels: str) -> Sample:
    return f"strandline_{name}", frozenset({"source": "test", **labels}.items())


def failures_counted() -> float:
    return REGISTRY.get_sample_value("strandline_record_failures_total") or 0.0


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number: int = free.getsockname()[1]
    return number


@pytest.fixture
def port() -> int:
    """A free one of this machine."""
    return free_port()


@dataclass
class ExposedCapture:
    """Metrics of one process before a capture, after it and after silver, and metrics of the lake's tables.

    The source has three documents, then one insert that the filters leave out, and one delete.
    """

    collection: str
    before: dict[Sample, float]
    captured: dict[Sample, float]
    merged: dict[Sample, float]
    of_tables: dict[Sample, float]

    def more(self, name: str, **labels: str) -> float:
        """Return the growth of a counter of the process."""
        return self.merged[sample(name, **labels)] - self.before.get(sample(name, **labels), 0.0)


@pytest.fixture(scope="module")
def exposed(
    spark: SparkSession, mongo: MongoClient[dict[str, Any]], mongo_uri: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ExposedCapture]:
    state, port, database = CaptureState(), free_port(), mongo[f"t_{uuid.uuid4().hex[:12]}"]
    serve(port, "127.0.0.1", {"source": "test"}, state)

    def counts() -> dict[Sample, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            return samples(answer.read().decode())

    ctx = pipeline(
        spark,
        mongo_uri,
        database.name,
        tmp_path_factory.mktemp("metrics"),
        cursor_oversize_handling_mode="skip",
        cursor_oversize_skip_threshold=99,
    )
    before = counts()
    database.a.insert_many([{"_id": number} for number in range(3)])
    run_capture(ctx, once=True, state=state)
    database.a.insert_one({"_id": 3, "heavy": "x" * 100})
    database.a.delete_one({"_id": 0})
    run_capture(ctx, once=True, state=state)
    captured = counts()
    run_silver(ctx)
    yield ExposedCapture(f"{database.name}.a", before, captured, counts(), samples(exposition(ctx)))
    mongo.drop_database(database.name)


def test_a_port_in_use_is_refused_with_the_setting_to_change(port: int) -> None:
    state = CaptureState()
    serve(port, "127.0.0.1", {"source": "test"}, state)
    with pytest.raises(ConfigurationError, match=rf"127\.0\.0\.1:{port} .* → choose another metrics\.port"):
        serve(port, "127.0.0.1", {"source": "test"}, state)


# scenario: R08
def test_a_capture_counts_its_documents_events_and_commits(exposed: ExposedCapture) -> None:
    more, now = exposed.more, exposed.merged
    assert (more("snapshot_documents_total"), more("events_total")) == (3, 2)
    assert (more("changes_total", operation="create"), more("changes_total", operation="delete")) == (1, 1)
    assert now[sample("snapshot_state", state="completed")] == 1
    assert now[sample("snapshot_rows", collection=exposed.collection)] == 3
    assert more("source_to_bronze_seconds_count") >= 1
    assert more("commit_seconds_count") >= 3
    assert 0 <= exposed.captured[sample("behind_source_seconds")] < 60
    assert abs(now[sample("last_event_timestamp_seconds")] - time.time()) < 600


# scenario: P06
def test_a_document_that_was_left_out_is_counted_as_skipped_and_as_a_row(exposed: ExposedCapture) -> None:
    more = exposed.more
    assert more("silver_rows_total", table="silver.a", done="inserted") == 4, "a row without values, too"
    names = "records_skipped", "failures_logged", "deadletterqueue_records_produced", "record_failures"
    assert [more(f"{name}_total") for name in names] == [1, 1, 1, 1]
    assert (more("deadletterqueue_produce_failures_total"), more("retries_total")) == (0, 0)
    assert abs(exposed.merged[sample("last_failure_timestamp_seconds")] - time.time()) < 600


# scenario: R08
def test_metrics_of_the_tables_equal_those_of_the_process(exposed: ExposedCapture) -> None:
    values, last = exposed.of_tables, sample("last_event_timestamp_seconds")
    assert values[sample("source_state", state="running")] == 1
    assert values[sample("batch")] >= 3
    assert values[last] == exposed.merged[last]
    assert values[sample("position_age_seconds")] >= 0
    expected = {"live": 3, "tombstone": 1, "rescued": 0, "waiting": 0, "stale": 1}
    assert {kind: values[sample("silver_table_rows", table="silver.a", kind=kind)] for kind in expected} == expected
    assert values[sample("total_records_skipped")] == 1
    assert values[sample("deadletterqueue_records_produced")] == 1


def test_the_page_describes_exactly_the_metrics_that_are_exposed(exposed: ExposedCapture) -> None:
    described = set(re.findall(r"^\| `(strandline_\w+)`", DOCUMENT.read_text(encoding="utf-8"), flags=re.MULTILINE))
    # the headroom is shown once an oplog has rolled; the others once there was such a run
    later = ("oplog_headroom_seconds", "reconcile_differences", "maintained_timestamp_seconds", "layer_failing")
    later += ("layer_failures_total", "telemetry_failures_total", "unknown_events_total")
    # only a snapshot that is held back, or has a limit, has these
    later += ("snapshot_held_timestamp_seconds", "snapshot_rate_limit_documents_per_second")
    later += ("proof_ranges", "proof_equal_timestamp_seconds", "proof_differences")  # with proof.budget
    absent = {f"strandline_{name}" for name in (*later, "snapshot_slowed_seconds_total")}
    names = {name for name, _ in (*exposed.merged, *exposed.of_tables) if name.startswith("strandline_")}
    shown = {name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count") for name in names}
    assert described - absent == shown - absent


@pytest.mark.long
def test_of_two_sources_of_a_lake_each_tells_of_its_own_tables(
    spark: SparkSession,
    mongo_uri: str,
    mongo: MongoClient[dict[str, Any]],
    database: Database[dict[str, Any]],
    tmp_path: Path,
) -> None:
    """One of them ended with a failure, and only its own metrics count it."""
    other = mongo[f"{database.name}_other"]
    how = {"notification_enabled_channels": ("table",), "errors_tolerance": "none"}
    texts = {}
    before = failures_counted()
    try:
        for source, of in (("first", database), ("second", other)):
            of[source].insert_one({"_id": 1})
            ctx = pipeline(spark, mongo_uri, of.name, tmp_path / "lake", **how)
            named = ctx.settings.source.model_copy(update={"name": source})
            ctx = replace(ctx, settings=ctx.settings.model_copy(update={"source": named}))
            run_capture(ctx, once=True)
            run_silver(ctx)
            texts[source] = exposition(ctx)
        other.second.insert_one(RawBSONDocument(bson.encode({"_id": 2, "text": "XX"}).replace(b"XX", b"\xff\xfe")))
        with pytest.raises(ContractError):
            run_capture(ctx, once=True)
        assert failures_counted() == before + 1, "the failure that ends a run is one, too"
        texts["second"] = exposition(ctx)
    finally:
        mongo.drop_database(other.name)
    counted = {
        source: samples(text)["strandline_total_record_failures", frozenset({("source", source)})]
        for source, text in texts.items()
    }
    assert counted == {"first": 0, "second": 1}
    for source, text in texts.items():
        found = [labels for (name, labels) in samples(text) if name.startswith("strandline_")]
        assert {dict(labels)["source"] for labels in found} == {source}
        assert {dict(labels)["table"] for labels in found if "table" in dict(labels)} == {f"silver.{source}"}
