"""``control.notifications`` and the log: what snapshots and signals did, in Debezium's words."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from pipelines.io.ddl import schema_of
from pipelines.io.tables import Tables
from pipelines.model.table_schemas import NOTIFICATIONS, NOTIFICATIONS_DDL

NotificationType = Literal[
    "STARTED", "IN_PROGRESS", "TABLE_SCAN_COMPLETED", "PAUSED", "RESUMED", "ABORTED", "SKIPPED", "COMPLETED"
]
NotificationChannel = Literal["table", "log"]

_log = logging.getLogger("strandline.notifications")
_Row = tuple[str, str, str, str, datetime, str]


@dataclass
class Notifications:
    """Tells at once in the log, and in the table by a commit for all that has gathered: a commit for each would cost what a chunk does.

    Args:
        seconds: The longest that `flush_due` lets a row wait.
    """

    tables: Tables
    source: str
    channels: Collection[NotificationChannel]
    seconds: float
    _rows: list[_Row] = field(default_factory=list, init=False)
    _flushed_at: float = field(default_factory=time.monotonic, init=False)
    _created: bool = field(default=False, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def tell(self, aggregate_type: str, kind: NotificationType, identifier: str, **more: Any) -> None:
        """No I/O but the log. From any thread."""
        data = json.dumps({"connector_name": self.source, **more})
        if "log" in self.channels:
            _log.info("%s %s %s", aggregate_type, kind, data, extra={"context": {"id": identifier, **more}})
        if "table" in self.channels:
            with self._lock:
                self._rows.append((identifier, aggregate_type, kind, data, datetime.now(UTC), self.source))

    def flush_due(self) -> None:
        """I/O: as `flush`, if the last one was long enough ago."""
        if self._rows and time.monotonic() - self._flushed_at >= self.seconds:
            self.flush()

    def flush(self) -> None:
        """I/O: one commit with what has gathered, none where nothing has.

        Whoever passes on what was told (the end of a snapshot, a signal) flushes before it, so that after a crash between the two the
        notification comes twice rather than never. Progress that a crash catches before a flush is lost; bronze has it.
        """
        with self._lock:
            rows, self._rows = self._rows, []
        self._flushed_at = time.monotonic()
        if not rows:
            return
        try:
            self._land(rows)
        except BaseException:  # whoever catches it flushes again
            with self._lock:
                self._rows = rows + self._rows
            raise

    def _land(self, rows: list[_Row]) -> None:
        schema = schema_of(NOTIFICATIONS_DDL)
        if not self._created:
            self.tables.create(NOTIFICATIONS, schema, comment="What snapshots and signals did")
            self._created = True
        self.tables.append(NOTIFICATIONS, self.tables.spark.createDataFrame(rows, schema).coalesce(1))
