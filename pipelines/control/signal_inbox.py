"""``control.signals``: what a running capture is asked to do. Every channel ends in this table, so that nothing is lost while it waits."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from bson import json_util
from pyspark.sql import functions as F

from pipelines.control.sources import deleted_at
from pipelines.io.ddl import schema_of
from pipelines.io.tables import Tables
from pipelines.model.signal import Channel, Signal
from pipelines.model.table_schemas import SIGNALS, SIGNALS_DDL
from pipelines.model.timestamps import utc


def send(tables: Tables, source: str, signals: Iterable[Signal]) -> None:
    """I/O: one commit with those *signals* that are not there yet. Idempotent by their keys."""
    schema = schema_of(SIGNALS_DDL)
    rows = {each.key: (each.key, each.type, each.data, each.at, each.by, source, each.channel) for each in signals}
    _create(tables)
    tables.insert_missing(SIGNALS, tables.spark.createDataFrame(list(rows.values()), schema), "id")


def _create(tables: Tables) -> None:
    tables.create(
        SIGNALS,
        schema_of(SIGNALS_DDL),
        comment="What a running capture is asked to do: append rows, it acts upon each once",
    )


@dataclass
class Inbox:
    """Looks for signals now and then, on behalf of one run of a capture.

    Args:
        channels: Rows that came by another one are not for us.
        file: Where the file channel is open.
        seconds: The shortest time between two looks. One costs a look at the table's version; its rows are read when that has moved.
    """

    tables: Tables
    source: str
    channels: Collection[Channel]
    file: SignalFile | None
    seconds: float
    _looked_at: float = field(default=float("-inf"), init=False)
    _looks: int = field(default=0, init=False)
    _version: int = field(default=-1, init=False)
    _known: set[str] = field(default_factory=set, init=False)

    def put(self, signals: Iterable[Signal]) -> None:
        """I/O: as `send`; the next look is due at once."""
        send(self.tables, self.source, signals)
        self._looked_at = float("-inf")

    @property
    def is_due(self) -> bool:
        """Whether something was put in since the last look."""
        return bool(self.channels) and self._looked_at == float("-inf")

    def new_signals(self) -> list[Signal]:
        """I/O: signals that no earlier call returned, oldest first, and none from before the source was deleted. The caller knows which of
        them an earlier run has acted upon."""
        if time.monotonic() - self._looked_at < self.seconds or not self.channels:
            return []
        self._looked_at, self._looks = time.monotonic(), self._looks + 1
        if "file" in self.channels and self.file is not None and (found := self.file.new_signals()):
            send(self.tables, self.source, found)
        if not self.tables.exists(SIGNALS):
            if self._looks == 2:  # a run that lasts: from now on SQL can reach it
                _create(self.tables)
            return []
        version = self.tables.version(SIGNALS)
        if version == self._version:
            return []
        self._version = version
        new_signals: dict[str, Signal] = {}
        for signal in self._read():
            if signal.key not in self._known:
                new_signals.setdefault(signal.key, signal)
        self._known |= new_signals.keys()
        return list(new_signals.values())

    def _read(self) -> list[Signal]:
        is_ours = (F.coalesce("source", F.lit(self.source)) == self.source) & F.coalesce(
            "channel", F.lit("table")
        ).isin(*self.channels)
        if (
            ended := deleted_at(self.tables, self.source)
        ) is not None:  # with bronze went what says which of them were acted upon
            is_ours &= F.col("at") > F.lit(ended)
        rows = self.tables.read(SIGNALS).where(is_ours).orderBy("at", "id").collect()
        return [
            Signal(row["id"], row["type"], row["data"], utc(row["at"]), row["by"], row["channel"] or "table")
            for row in rows
        ]


@dataclass
class SignalFile:
    """JSON lines ``{"id": …, "type": …, "data": {…}}`` that somebody appends to, or overwrites. A run begins at the top: known ones stay
    known."""

    path: Path
    _end: int = field(default=0, init=False)
    _sum: bytes = field(default_factory=lambda: sha256().digest(), init=False)

    def new_signals(self) -> list[Signal]:
        """I/O: signals of whole lines that were added since the last call, or all of a file that no longer begins with what was read.

        All of it is read: neither a size nor a time tells what was overwritten from what was appended to.
        """
        content = self.path.read_bytes() if self.path.is_file() else b""
        start = self._end if sha256(content[: self._end]).digest() == self._sum else 0
        added, newline, _ = content[start:].rpartition(b"\n")
        self._end = start + len(added + newline)
        self._sum = sha256(content[: self._end]).digest()
        return [signal_of_line(line, self.path) for line in added.splitlines() if line.strip()]


def signal_of_line(line: bytes, file: Path) -> Signal:
    """One without an id is named after what it says: the same line again is the same signal."""
    named = sha256(line.strip()).hexdigest()[:32]
    with suppress(ValueError, RecursionError):
        parsed = json.loads(line)
        if isinstance(parsed, dict):
            return from_document(parsed, str(parsed.get("id") or named), str(file), "file")
    return Signal(named, "(no JSON object)", None, datetime.now(UTC), str(file), "file")


def from_document(document: dict[str, object], identifier: str, by: str, channel: Channel) -> Signal:
    """A signal from an object with ``type`` and ``data`` (an object, or JSON)."""
    data, kind = document.get("data"), document.get("type")
    text = data if isinstance(data, str | None) else json_util.dumps(data)  # a filter may hold any type of BSON
    return Signal(
        _storable(identifier),
        _storable(None if kind is None else str(kind)),
        _storable(text),
        datetime.now(UTC),
        by,
        channel,
    )


def _storable(text: str | None) -> str | None:
    """Without halves of surrogate pairs: JSON may escape one, and no table can hold it."""
    return None if text is None else text.encode("utf-8", "replace").decode()
