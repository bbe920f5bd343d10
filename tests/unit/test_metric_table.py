"""Every metric of Debezium's MongoDB connector and of KIP-298 has its place; what is served is valid and bounded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bson
import pytest
from bson.binary import Binary
from bson.timestamp import Timestamp
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families
from pydantic import ValidationError

from scripts.metrics_page import origins
from strandline.control.notifications import Notifications, unknown_operations
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.io.telemetry.live_metrics import LiveMetrics, largest
from strandline.io.telemetry.live_state import CaptureState, SnapshotNow
from strandline.io.telemetry.metric_table import described
from strandline.io.telemetry.metrics import OTHERS, TABLE_NAMES, Labelled, count_silver
from strandline.jobs.capture.stream_metrics import transaction_id
from strandline.jobs.capture.unknown_operations import UnknownOperations
from strandline.model.tables import Lake
from strandline.settings.output import MetricsSettings
from strandline.source.event_tally import tally

_BOTH = [
    "LastEvent",
    "MilliSecondsSinceLastEvent",
    "TotalNumberOfEventsSeen",
    "NumberOfEventsFiltered",
    "CapturedTables",
    "QueueTotalCapacity",
    "QueueRemainingCapacity",
    "MaxQueueSizeInBytes",
    "CurrentQueueSizeInBytes",
    "NumberOfDisconnects",
]
_SNAPSHOT = [
    "TotalTableCount",
    "RemainingTableCount",
    "SnapshotRunning",
    "SnapshotPaused",
    "SnapshotAborted",
    "SnapshotCompleted",
    "SnapshotDurationInSeconds",
    "SnapshotPausedDurationInSeconds",
    "RowsScanned",
    "ChunkId",
    "ChunkFrom",
    "ChunkTo",
    "TableFrom",
    "TableTo",
]
_STREAMING = [
    "TotalNumberOfCreateEventsSeen",
    "TotalNumberOfUpdateEventsSeen",
    "TotalNumberOfDeleteEventsSeen",
    "Connected",
    "MilliSecondsBehindSource",
    "MilliSecondsBehindSourceMinValue",
    "MilliSecondsBehindSourceMaxValue",
    "MilliSecondsBehindSourceAverageValue",
    "MilliSecondsBehindSourceP50",
    "MilliSecondsBehindSourceP95",
    "MilliSecondsBehindSourceP99",
    "NumberOfCommittedTransactions",
    "SourceEventPosition",
    "LastTransactionId",
    "NumberOfPrimaryElections",
]
_KIP = [
    "total-record-failures",
    "total-records-skipped",
    "total-retries",
    "total-failures-logged",
    "deadletterqueue-records-produced",
    "deadletterqueue-produce-failures",
    "last-failure-timestamp",
]


def test_every_attribute_of_debezium_and_kip_298_has_one_place() -> None:
    wanted = {f"snapshot.{name}" for name in _BOTH + _SNAPSHOT} | {f"streaming.{name}" for name in _BOTH + _STREAMING}
    assert set(origins()) == wanted | {f"kip.{name}" for name in _KIP}
    assert all(origins().values())


def snapshot(collections: int) -> SnapshotNow:
    documents = {f"db.c{number}": number for number in range(collections)}
    chunk = {"number": 0, "collection": "db.c0"}
    return SnapshotNow("s", "initial", "paused", 2.0, 1.0, collections, 1, 9, 3, documents, chunk, 5.0)


def test_the_metrics_page_is_valid_and_each_series_has_a_source() -> None:
    count_silver("silver.a", {"inserted": 1}, 0.5)
    registry = CollectorRegistry()
    registry.register(Labelled({"source": "shop", "environment": "prod"}, LiveMetrics(CaptureState())))
    families = list(open_metrics(generate_openmetrics(registry).decode()))
    samples = [sample for family in families for sample in family.samples]
    assert {(sample.labels["source"], sample.labels["environment"]) for sample in samples} == {("shop", "prod")}
    plain = {
        sample.name
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }
    unknown = ("strandline_behind_source_seconds", "strandline_since_last_event_seconds")
    always = {
        each.name
        for each in described()
        if each.place == "process" and not each.labels and "snapshot_" not in each.name and each.name not in unknown
    }
    assert [name for name in always if not any(sample.startswith(name) for sample in plain)] == []


def test_a_snapshot_is_shown_with_a_bounded_number_of_series() -> None:
    state = CaptureState(snapshot=lambda: snapshot(120))
    registry = CollectorRegistry()
    registry.register(LiveMetrics(state))
    families = {family.name: family for family in open_metrics(generate_openmetrics(registry).decode())}
    rows = {sample.labels["collection"]: sample.value for sample in families["strandline_snapshot_rows"].samples}
    assert (len(rows), rows["db.c119"]) == (TABLE_NAMES.limit + 1, 119)
    assert sum(rows.values()) == sum(range(120)), "the rest is summed"
    states = {each.labels["state"]: each.value for each in families["strandline_snapshot_state"].samples}
    assert states == {"running": 0, "paused": 1, "aborted": 0, "completed": 0}
    assert state.document()["snapshot"]["chunks_done"] == 3


def test_tables_beyond_the_limit_share_one_series(monkeypatch: pytest.MonkeyPatch) -> None:
    assert largest({"a": 1, "b": 3, "c": 2}, 2) == {"b": 3, "c": 2, OTHERS: 1}
    assert largest({"a": 1}, 2) == {"a": 1}
    monkeypatch.setattr(TABLE_NAMES, "limit", 0)
    assert TABLE_NAMES("silver.never seen") == OTHERS


@pytest.mark.parametrize("tags", [{"source": "x"}, {"1a": "x"}, {"a-b": "x"}, {"le": "1"}, {"": "x"}])
def test_a_tag_is_a_label_that_no_metric_has(tags: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="a tag is a name of letters"):
        MetricsSettings(tags=tags)
    assert MetricsSettings(tags={"environment": "prod"}).tags == {"environment": "prod"}


def event(operation: str, **more: Any) -> bytes:
    return bson.encode({"_id": {"_data": "82"}, "operationType": operation, "clusterTime": Timestamp(1, 1), **more})


def test_operations_and_transactions_are_counted_and_documents_are_not_mistaken_for_them() -> None:
    session = {"lsid": {"id": Binary(b"0123456789abcdef", 4), "uid": Binary(b"u")}, "txnNumber": bson.Int64(7)}
    found = tally(
        [
            event("insert", fullDocument={"operationType": "delete", "txnNumber": bson.Int64(1)}),
            event("update", **session),
            event("replace", **session),
            event("delete", **{**session, "txnNumber": bson.Int64(8)}),
            event("drop"),
        ]
    )
    assert found.changes == {"create": 1, "update": 2, "delete": 1}
    assert found.unknown == {}
    assert [transaction_id(each) for each in found.transactions] == [
        f"{b'0123456789abcdef'.hex()}:7",
        f"{b'0123456789abcdef'.hex()}:8",
    ]


def test_an_operation_type_that_this_release_does_not_know_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """E12. E8, E11: known types that change nothing."""
    known = ["endOfTransaction", "create", "reshardBegin", "reshardCollection", "invalidate", "modify"]
    future = event("someFutureType", ns={"db": "shop", "coll": "a"}, newField=[1])
    found = tally([*map(event, known), future, future, event("insert", fullDocument={"operationType": "other"})])
    assert found.unknown == {"someFutureType": 2}
    tables = DeltaRsTables(Lake(root=str(tmp_path)))
    notifications = Notifications(tables, "shop", ("table",), seconds=0)
    labels = {"operation_type": "someFutureType"}
    before = REGISTRY.get_sample_value("strandline_unknown_events_total", labels) or 0
    told = UnknownOperations(notifications)
    told.add(found.unknown)
    told.add(found.unknown)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "someFutureType" in caplog.text
    assert unknown_operations(tables, "shop") == []
    notifications.flush()
    assert unknown_operations(tables, "shop") == ["someFutureType"]
    assert unknown_operations(tables, "other") == []
    assert REGISTRY.get_sample_value("strandline_unknown_events_total", labels) == before + 4
