"""Notifications about snapshots and signals, in Debezium's format, to ``control.notifications`` and to the log."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal

import pyarrow as pa

from strandline.io.tables.table_store import TableStore
from strandline.model.query import Query
from strandline.model.table_schemas import NOTIFICATIONS, NOTIFICATIONS_DDL

NotificationType = Literal[
    "STARTED", "IN_PROGRESS", "TABLE_SCAN_COMPLETED", "PAUSED", "RESUMED", "ABORTED", "SKIPPED", "COMPLETED"
]
NotificationChannel = Literal["table", "log"]

RUN: Final = "Capture"
"""Aggregate type of a notification about a run of a capture as a whole."""
MAINTENANCE: Final = "Maintenance"
"""Aggregate type of a notification about a run of `strandline maintain`."""
OPERATION: Final = "Operation"
"""Aggregate type of a notification about an operation type of MongoDB that this release does not know."""
_log = logging.getLogger("strandline.notifications")
_TIME = pa.timestamp("us", tz="UTC")
_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("aggregate_type", pa.string()),
        ("type", pa.string()),
        ("additional_data", pa.string()),
        ("timestamp", _TIME),
        ("source", pa.string()),
    ]
)
_Row = tuple[str, str, str, str, datetime, str]


@dataclass
class Notifications:
    """Sender of notifications. The log gets each at once; the table gets one commit for several.

    A commit for each notification would cost as much as a snapshot chunk.

    Args:
        channels: Destinations: ``table``, ``log``.
        seconds: Maximum time in seconds that a row waits for `flush_due`.
    """

    tables: TableStore
    source: str
    channels: Collection[NotificationChannel]
    seconds: float
    _rows: list[_Row] = field(default_factory=list, init=False)
    _flushed_at: float = field(default_factory=time.monotonic, init=False)
    _created: bool = field(default=False, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def notify(self, aggregate_type: str, kind: NotificationType, identifier: str, **more: Any) -> None:
        """Log a notification and queue it for the table. No other I/O; safe from any thread."""
        data = json.dumps({"connector_name": self.source, **more})
        if "log" in self.channels:
            extra = {"context": {"id": identifier, **more}, "brief": _brief(aggregate_type, kind, more)}
            _log.info("%s %s %s", aggregate_type, kind, data, extra=extra)
        if "table" in self.channels:
            with self._lock:
                self._rows.append((identifier, aggregate_type, kind, data, datetime.now(UTC), self.source))

    def flush_due(self) -> None:
        """Call `flush` if rows wait and the last flush was *seconds* ago."""
        if self._rows and time.monotonic() - self._flushed_at >= self.seconds:
            self.flush()

    def flush(self) -> None:
        """Append the queued notifications in one commit; no commit without notifications.

        Call it before the event itself is committed (the end of a snapshot, a signal). After a crash between the two
        the notification comes twice, not never.

        Effects on failure: the notifications stay queued; calling again is safe. A crash before the flush loses
        progress notifications, but bronze has the progress.
        """
        with self._lock:
            rows, self._rows = self._rows, []
        self._flushed_at = time.monotonic()
        if not rows:
            return
        try:
            self._append(rows)
        except BaseException:  # keep the rows for the next flush
            with self._lock:
                self._rows = rows + self._rows
            raise

    def _append(self, rows: list[_Row]) -> None:
        if not self._created:
            self.tables.create_table(NOTIFICATIONS, NOTIFICATIONS_DDL, comment="What snapshots and signals did")
            self._created = True
        columns = [
            pa.array(values, column.type) for values, column in zip(zip(*rows, strict=True), _SCHEMA, strict=True)
        ]
        self.tables.append_rows(NOTIFICATIONS, pa.Table.from_arrays(columns, schema=_SCHEMA))


def failed_runs(tables: TableStore, source: str) -> tuple[int, datetime | None]:
    """Return the number of runs of a capture that ended with a failure, and the time of the newest one.

    I/O: reads ``control.notifications``. Retention removes old rows.
    """
    if not tables.exists(NOTIFICATIONS):
        return 0, None
    failed = Query(NOTIFICATIONS).where(("source", "=", source), ("aggregate_type", "=", RUN), ("type", "=", "ABORTED"))
    (totals,) = tables.query(failed.aggregate(runs=("count", "id"), last=("max", "timestamp")))
    return totals["runs"], totals["last"]


def unknown_operations(tables: TableStore, source: str) -> list[str]:
    """Return the operation types that captures did not know, sorted. I/O: reads ``control.notifications``."""
    if not tables.exists(NOTIFICATIONS):
        return []
    of_type = Query(NOTIFICATIONS).where(("source", "=", source), ("aggregate_type", "=", OPERATION))
    return sorted(row["id"] for row in tables.query(of_type.group("id").aggregate(times=("count", "id"))))


def newest_notification(tables: TableStore, source: str, aggregate_type: str) -> datetime | None:
    """Return the time of the newest notification of *aggregate_type*. None: there is none. I/O: reads the table."""
    if not tables.exists(NOTIFICATIONS):
        return None
    of_type = Query(NOTIFICATIONS).where(("source", "=", source), ("aggregate_type", "=", aggregate_type))
    (row,) = tables.query(of_type.aggregate(last=("max", "timestamp")))
    newest: datetime | None = row["last"]
    return newest


def _brief(aggregate_type: str, kind: str, more: Mapping[str, Any]) -> str:
    """Return a notification for a person: ``Initial Snapshot in progress: chunk 1, chunks 3``. Ids are left out."""
    facts = (
        f"{name.replace('_', ' ')} {f'{len(value)}' if isinstance(value, list | tuple) else value}"
        for name, value in more.items()
        if not name.endswith("_id")
    )
    return f"{aggregate_type} {kind.lower().replace('_', ' ')}: {', '.join(facts)}"
