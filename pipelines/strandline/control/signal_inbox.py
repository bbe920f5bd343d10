"""``control.signals``: requests to a running capture. Every channel writes to this table, so that no signal is lost."""

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

from strandline.control.sources import deleted_at
from strandline.io.tables.table_store import TableStore
from strandline.model.query import Query
from strandline.model.signal import Channel, Signal
from strandline.model.table_schemas import SIGNALS, SIGNALS_DDL


def send(tables: TableStore, source: str, signals: Iterable[Signal]) -> None:
    """Insert *signals* that are missing, in one commit. Idempotent: a signal's key is its idempotency key."""
    rows = {signal.key: {**_columns(signal), "source": source} for signal in signals}
    comment = "What a running capture is asked to do: append rows, it acts upon each once"
    tables.insert_rows(SIGNALS, SIGNALS_DDL, list(rows.values()), "id", comment=comment)


def _columns(signal: Signal) -> dict[str, object]:
    return {
        "id": signal.key,
        "type": signal.type,
        "data": signal.data,
        "at": signal.at,
        "by": signal.by,
        "channel": signal.channel,
    }


@dataclass
class SignalInbox:
    """Reader of new signals for one run of a capture.

    Args:
        channels: Enabled channels. Signals of other channels are ignored.
        file: File of the channel ``file``. None: that channel is disabled.
        seconds: Minimum time between two reads, in seconds. A read asks for the table's version, and reads rows only if
            the version has changed.
    """

    tables: TableStore
    source: str
    channels: Collection[Channel]
    file: SignalFile | None
    seconds: float
    _read_at: float = field(default=float("-inf"), init=False)
    _reads: int = field(default=0, init=False)
    _version: int = field(default=-1, init=False)
    _known_keys: set[str] = field(default_factory=set, init=False)

    def put(self, signals: Iterable[Signal]) -> None:
        """Insert *signals* as `send` does, and let the next call of `new_signals` read at once."""
        send(self.tables, self.source, signals)
        self._read_at = float("-inf")

    @property
    def is_due(self) -> bool:
        """Return True if signals were put in since the last read."""
        return bool(self.channels) and self._read_at == float("-inf")

    def new_signals(self) -> list[Signal]:
        """Return signals that no earlier call of this run returned, oldest first.

        I/O: reads the signal file and ``control.signals``. Signals from before the source was deleted are left out. The
        caller must skip signals that an earlier run has handled.
        """
        if time.monotonic() - self._read_at < self.seconds or not self.channels:
            return []
        self._read_at, self._reads = time.monotonic(), self._reads + 1
        if "file" in self.channels and self.file is not None and (signals := self.file.new_signals()):
            send(self.tables, self.source, signals)
        if not self.tables.exists(SIGNALS):
            if self._reads == 2:  # a run that lasts: create the table, so that SQL can insert signals
                send(self.tables, self.source, [])
            return []
        version = self.tables.version(SIGNALS)
        if version == self._version:
            return []
        self._version = version
        new_signals: dict[str, Signal] = {}
        for signal in self._read():
            if signal.key not in self._known_keys:
                new_signals.setdefault(signal.key, signal)
        self._known_keys |= new_signals.keys()
        return list(new_signals.values())

    def _read(self) -> list[Signal]:
        without_channel = [("channel", "is null", None)] if "table" in self.channels else []
        ours = (
            Query(SIGNALS)
            .select("id", "type", "data", "at", "by", "channel")
            .where_any(("source", "is null", None), ("source", "=", self.source))
            .where_any(("channel", "in", self.channels), *without_channel)
        )
        # Bronze knew which signals were handled, and was deleted with the source.
        if (ended := deleted_at(self.tables, self.source)) is not None:
            ours = ours.where(("at", ">", ended))
        return [
            Signal(row["id"], row["type"], row["data"], row["at"], row["by"], row["channel"] or "table")
            for row in self.tables.query(ours.order("at", "id"))
        ]


@dataclass
class SignalFile:
    """File of JSON lines ``{"id": …, "type": …, "data": {…}}`` that users append to or overwrite.

    A run reads the file from the start. Signals that are in the table already are not inserted again.
    """

    path: Path
    _end: int = field(default=0, init=False)
    _digest: bytes = field(default_factory=lambda: sha256().digest(), init=False)

    def new_signals(self) -> list[Signal]:
        """Return the signals of complete lines that were added since the last call.

        I/O: reads the whole file, because neither size nor time shows if it was appended to or overwritten. An
        overwritten file is read from its start.
        """
        content = self.path.read_bytes() if self.path.is_file() else b""
        start = self._end if sha256(content[: self._end]).digest() == self._digest else 0
        added, newline, _ = content[start:].rpartition(b"\n")
        self._end = start + len(added + newline)
        self._digest = sha256(content[: self._end]).digest()
        return [signal_of_line(line, self.path) for line in added.splitlines() if line.strip()]


def signal_of_line(line: bytes, file: Path) -> Signal:
    """Return the signal of one line. Without an id its key is a hash: the same line again is the same signal."""
    line_hash = sha256(line.strip()).hexdigest()[:32]
    with suppress(ValueError, RecursionError):
        parsed = json.loads(line)
        if isinstance(parsed, dict):
            return from_document(parsed, str(parsed.get("id") or line_hash), str(file), "file")
    return Signal(line_hash, "(no JSON object)", None, datetime.now(UTC), str(file), "file")


def from_document(document: dict[str, object], identifier: str, by: str, channel: Channel) -> Signal:
    """Return the signal of an object with ``type`` and ``data`` (an object, or JSON text)."""
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
    """Replace lone surrogates by ``?``: JSON may contain them, but a table cannot store them."""
    return None if text is None else text.encode("utf-8", "replace").decode()
