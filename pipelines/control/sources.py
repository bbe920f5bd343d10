"""Whether a source is to run: rows of ``control.sources``, kept through restarts and read by whatever captures."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from pyspark.sql import functions as F

from pipelines.io.ddl import schema_of
from pipelines.io.tables import Tables
from pipelines.model.table_schemas import SOURCES, SOURCES_DDL
from pipelines.model.timestamps import utc

State = Literal["running", "paused", "stopped", "deleted"]


@dataclass(frozen=True)
class SourceState:
    """What an operator asked for. A source of which nobody ever asked anything runs."""

    source: str
    state: State = "running"
    at: datetime | None = None
    """Since when, UTC."""
    by: str | None = None
    why: str | None = None
    number: int = 0


def state_of(tables: Tables, source: str) -> SourceState:
    """I/O: reads the newest row of *source*."""
    if not tables.exists(SOURCES):
        return SourceState(source)
    row = tables.read(SOURCES).where(F.col("source") == source).orderBy(F.col("number").desc()).first()
    if row is None:
        return SourceState(source)
    return SourceState(source, row["state"], utc(row["at"]), row["by"], row["why"], row["number"])


def deleted_at(tables: Tables, source: str) -> datetime | None:
    """I/O: when *source* was deleted last, UTC; None: never."""
    if not tables.exists(SOURCES):
        return None
    rows = tables.read(SOURCES).where((F.col("source") == source) & (F.col("state") == "deleted"))
    row = rows.orderBy(F.col("number").desc()).first()
    return None if row is None else utc(row["at"])


def set_state(tables: Tables, source: str, state: State, *, by: str, why: str | None) -> SourceState:
    """I/O: one commit that inserts a row; none where the source is in that state already.

    Every state may follow every other, as KIP-875 has it: a paused source may be stopped, and a stopped one paused. Of two operators who
    ask at once the second one's row comes after the first one's.
    """
    schema = schema_of(SOURCES_DDL)
    while True:
        before = state_of(tables, source)
        if before.state == state:
            return before
        tables.create(SOURCES, schema, comment="What operators asked of the sources: running, paused or stopped")
        now = SourceState(source, state, datetime.now(UTC), by, why, before.number + 1)
        row = (now.number, now.source, now.state, now.at, now.by, now.why)
        rows = tables.spark.createDataFrame([row], schema)
        if tables.insert_missing(SOURCES, rows, "source", "number"):  # nobody has taken the number since
            return now


class Gate:
    """Asks for a source's state now and then, on behalf of a run that may be told to pause or to stop.

    Args:
        seconds: How long an answer is believed: asking costs a small read of a Delta table.
    """

    def __init__(self, tables: Tables, source: str, seconds: float) -> None:
        self._tables, self._source, self._seconds = tables, source, seconds
        self._state: State = "running"
        self._asked_at = float("-inf")
        self._lock = threading.Lock()

    def state(self) -> State:
        """The source's state, at most so many seconds old."""
        with self._lock:
            if time.monotonic() - self._asked_at >= self._seconds:
                self._state = state_of(self._tables, self._source).state
                self._asked_at = time.monotonic()
            return self._state

    def passes(self, stop: threading.Event) -> bool:
        """Waits while the source is paused. False once it is stopped, or *stop* is set."""
        while not stop.is_set():
            state = self.state()
            if state != "paused":
                return state == "running"
            stop.wait(self._seconds)
        return False
