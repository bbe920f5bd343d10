"""A lake for the web page, written without a JVM: silver, gold's SQL, quality, dead letters, differences, cuts.

Bronze comes from a capture of a real server: tests/integration/test_ui.py.
"""

from __future__ import annotations

import json
import shutil
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import write_deltalake
from starlette.testclient import TestClient

from strandline.control.dead_letters import DeadLetter, DeadLetters
from strandline.control.notifications import MAINTENANCE, Notifications
from strandline.control.proof import ProofRange, ProofTable
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.model.position import snapshot_position
from strandline.model.quarantine import QUARANTINE_DDL, quarantine_of, quarantine_properties
from strandline.model.table_schemas import (
    CUTS,
    CUTS_DDL,
    QUALITY,
    QUALITY_DDL,
    RECONCILE,
    RECONCILE_DDL,
    SCHEMA_CHANGES,
    SCHEMA_CHANGES_DDL,
    SILVER_BOOKKEEPING_DDL,
)
from strandline.model.tables import TableName
from strandline.settings.configuration import Settings
from strandline.silver.compatibility import bookkeeping_ddl
from strandline.web.watched_lake import WatchedLake, watch_without_spark

ORDERS: Final = TableName("silver", "orders")
HOSTILE: Final = "<script>alert(1)</script>"
"""A name from the source that a page must show as text."""
_NOW: Final = datetime(2026, 11, 25, 8, 0, tzinfo=UTC)


def add_tables(tables: DeltaRsTables) -> None:
    """I/O: writes silver with two live rows and a tombstone, and every control table that a page shows."""
    _silver(tables)
    _append(
        tables,
        SCHEMA_CHANGES,
        SCHEMA_CHANGES_DDL,
        {"at": _NOW, "table": str(ORDERS), "path": HOSTILE, "before": "", "after": "bigint", "bronze_version": 1},
    )
    later = {"run_id": "later", "ran_at": _NOW + timedelta(hours=1)}
    twice = (_check("passed", kwargs='{"mostly": 0.5}', **later), _check("failed", **later))
    _append(tables, QUALITY, QUALITY_DDL, _check("passed"), *twice)
    _append(tables, RECONCILE, RECONCILE_DDL, _difference("missing"), _difference("different", repaired_at=_NOW))
    proof = ProofRange("test", "shop", HOSTILE, 0, None, None, _NOW)
    position = snapshot_position(1_800_000_000, 1)
    ProofTable(tables, "test").write(
        [proof.after(_NOW, "r", documents=1, position=position, differences=0, due_again=False)]
    )
    cut = {
        "cut": 1,
        "bronze": "b",
        "bronze_version": 3,
        "position": None,
        "published_at": _NOW,
        "exact": True,
        "inexact_reasons": [],
        "tables": [{"name": str(ORDERS), "version": 1}],
    }
    _append(tables, CUTS, CUTS_DDL, cut)
    letter = DeadLetter(
        "test", "convert", "TypeError", HOSTILE, "p", "shop", "orders", None, '"someone@example.com"', 2, _NOW, b"\0"
    )
    DeadLetters(tables).add([letter])
    told = Notifications(tables, "test", ("table",), 0)
    told.notify(MAINTENANCE, "COMPLETED", "m", tables=3)
    told.flush()


def many_tables(tables: DeltaRsTables, count: int) -> None:
    """I/O: copies silver.orders under other names, so that there are *count* silver tables more."""
    folder = Path(tables.lake.path(ORDERS))
    for number in range(count):
        copy = shutil.copytree(folder, folder.with_name(f"t_{number:04}"))
        for file in copy.glob("_delta_log/*.json"):
            file.write_text(file.read_text("utf-8").replace(str(ORDERS), f"silver.{copy.name}"), "utf-8")


def write_gold(folder: Path) -> str:
    """I/O: writes SQL files: a table, a view of it, and a node whose input is missing. Returns their folder."""
    folder.mkdir(parents=True)
    pieces = {
        "totals": "-- materialized: table\nselect count(*) as n from silver.orders",
        "report": "select n from gold.totals",
        "late": "-- materialized: table\nselect count(*) as n from silver.nowhere",
    }
    for name, text in pieces.items():
        (folder / f"{name}.sql").write_text(text + "\n", "utf-8")
    return str(folder)


def watched(settings: Settings) -> WatchedLake:
    """The opened lake, without Spark."""
    lake = watch_without_spark(settings)
    assert lake is not None
    return lake


def read(client: TestClient, path: str) -> str:
    """Return a page, once the lake has been read for it and rows are counted."""
    deadline = time.monotonic() + 60
    while True:
        answer = client.get(path)
        assert answer.status_code == 200, answer.text
        is_uncounted = path == "/silver" and 'number">–' in answer.text
        if "Reading the lake" not in answer.text and not is_uncounted:
            return answer.text
        assert time.monotonic() < deadline, path
        time.sleep(0.1)


def _silver(tables: DeltaRsTables) -> None:
    tables.create_table(ORDERS, "_id BIGINT, " + bookkeeping_ddl(SILVER_BOOKKEEPING_DDL, "portable"))
    rows = [
        {"_id": number, "_key": str(number), "_position": "p", "_op": "c", "_deleted": number == 2, "_exact": True}
        | {"_cluster_time": _NOW, "_rescued": '{"a": 1}' if number == 1 else None}
        for number in range(3)
    ]
    _write(tables, ORDERS, rows)
    held = quarantine_of(ORDERS)
    tables.create_table(held, QUARANTINE_DDL, properties=quarantine_properties(ORDERS))
    _write(tables, held, [{"_key": "1", "suite": "orders", "reasons": ["not null"], "quarantined_at": _NOW}])


def _append(tables: DeltaRsTables, table: TableName, ddl: str, *rows: dict[str, Any]) -> None:
    tables.create_table(table, ddl)
    _write(tables, table, list(rows))


def _write(tables: DeltaRsTables, table: TableName, rows: list[dict[str, Any]]) -> None:
    opened = tables.folder(table).table()
    schema = pa.schema(opened.schema().to_arrow())
    filled = [{name: row.get(name) for name in schema.names} for row in rows]
    write_deltalake(opened, pa.Table.from_pylist(filled, schema=schema), mode="append")


def _check(outcome: str, **more: Any) -> dict[str, Any]:
    return {
        "run_id": "r",
        "ran_at": _NOW,
        "table": str(ORDERS),
        "suite": "orders",
        "expectation": "expect_column_values_to_not_be_null",
        "column": "total",
        "kwargs": "{}",
        "success": outcome == "passed",
        "outcome": outcome,
        "observed": json.dumps({}),
        "unexpected_count": 1,
        "on_failure": "quarantine",
    } | more


def _difference(kind: str, **more: Any) -> dict[str, Any]:
    return {
        "run_id": "r",
        "at": _NOW,
        "source": "test",
        "db": "shop",
        "collection": HOSTILE,
        "kind": kind,
        "key": "1",
        "confirmed": True,
    } | more
