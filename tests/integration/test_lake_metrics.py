"""Metrics of the tables that need no Spark: position, failures of all runs, differences, maintenance, silver's rows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bson
import pytest
from bson.raw_bson import RawBSONDocument
from lakehouse import settings_for
from prometheus_client import REGISTRY
from pymongo import MongoClient
from pymongo.database import Database

from strandline.control.notifications import MAINTENANCE, Notifications
from strandline.control.proof import ProofRange, ProofTable
from strandline.errors import ContractError
from strandline.io.telemetry.metrics import OTHERS
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.lake_context import DeltaRsContext, open_capture_without_spark
from strandline.jobs.offsets.show_offset import show_offset
from strandline.jobs.operations.metrics import _control_metrics, _offset_metrics, _silver_metrics
from strandline.jobs.operations.status import TableStatus
from strandline.model.table_schemas import RECONCILE, RECONCILE_DDL
from strandline.model.tables import TableName


def context(uri: str, database: str, root: Path, source: str) -> DeltaRsContext:
    settings = settings_for(
        uri, database, root, engine="native", notification_enabled_channels=("table",), errors_tolerance="none"
    )
    named = settings.model_copy(update={"source": settings.source.model_copy(update={"name": source})})
    opened = open_capture_without_spark(named)
    assert opened is not None
    return opened


def told(ctx: DeltaRsContext) -> dict[str, float]:
    metrics = [*_offset_metrics(show_offset(ctx)), *_control_metrics(ctx)]
    return {sample.name.removeprefix("strandline_"): sample.value for each in metrics for sample in each.samples}


def failures() -> float:
    return REGISTRY.get_sample_value("strandline_record_failures_total") or 0.0


def test_each_source_tells_of_its_own_failures(
    mongo_uri: str, mongo: MongoClient[dict[str, Any]], database: Database[dict[str, Any]], tmp_path: Path
) -> None:
    other = mongo[f"{database.name}_other"]
    first = context(mongo_uri, database.name, tmp_path / "lake", "first")
    second = context(mongo_uri, other.name, tmp_path / "lake", "second")
    try:
        for ctx, of in ((first, database), (second, other)):
            of.a.insert_one({"_id": 1})
            run_capture(ctx, once=True)
        before = failures()
        other.a.insert_one(RawBSONDocument(bson.encode({"_id": 2, "text": "XX"}).replace(b"XX", b"\xff\xfe")))
        with pytest.raises(ContractError):
            run_capture(second, once=True)
        assert failures() == before + 1, "the failure that ends a run is one, too"
    finally:
        mongo.drop_database(other.name)
    run = {"kind": "different", "db": "d", "collection": "a", "key": "1", "identifier": b"", "position": None}
    run |= {"run_id": "r", "at": datetime.now(UTC), "source": "second", "compared_at": "", "confirmed": True}
    second.tables.insert_rows(RECONCILE, RECONCILE_DDL, [run | {"repaired_at": None}], "run_id")
    maintained = Notifications(second.tables, "second", frozenset({"table"}), 0)
    maintained.notify(MAINTENANCE, "COMPLETED", "m", tables=1)
    maintained.flush()
    ProofTable(second.tables, "second").write([ProofRange("second", "d", "a", 0, None, None, datetime.now(UTC))])
    of_first, of_second = told(first), told(second)
    assert (of_first.get("proof_differences"), of_second["proof_differences"]) == (None, 0)
    assert "proof_equal_timestamp_seconds" not in of_second, "no range was equal yet"
    assert (of_first["total_record_failures"], of_second["total_record_failures"]) == (0, 1)
    assert (of_first.get("reconcile_differences"), of_second["reconcile_differences"]) == (None, 1)
    assert of_second["maintained_timestamp_seconds"] > of_second["captured_timestamp_seconds"]
    assert "maintained_timestamp_seconds" not in of_first
    assert (of_first["source_state"], of_first["batch"] > 0) == (1, True)


def test_the_smallest_tables_beyond_the_limit_are_summed() -> None:
    one = TableStatus(TableName("silver", "a"), 5, 1, 0, 0, 2, None)
    tables = [one, replace(one, table=TableName("silver", "b"), live=3), replace(one, table=TableName("silver", "c"))]
    rows, _ = _silver_metrics(tables, {"silver.a": 4}, 1)
    counts = {(each.labels["table"], each.labels["kind"]): each.value for each in rows.samples}
    assert (counts["silver.a", "live"], counts["silver.a", "quarantined"]) == (5, 4)
    assert (counts[OTHERS, "live"], counts[OTHERS, "stale"]) == (8, 4)
