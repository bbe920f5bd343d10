"""Send a signal from the command line or a notebook to a running capture, or to the next one at its start."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from strandline.control.signal_inbox import send
from strandline.errors import ConfigurationError
from strandline.jobs.lake_context import LakeContext
from strandline.model.signal import RejectedSignal, Signal, parse_signal


def send_signal(ctx: LakeContext, kind: str, data: Mapping[str, Any], *, by: str) -> Signal:
    """Send a signal, and return it.

    I/O: inserts one row into ``control.signals``.

    Args:
        by: Name of the user, stored with the signal.
        kind: ``execute-snapshot``, ``stop-snapshot``, ``pause-snapshot``, ``resume-snapshot`` or ``log``.

    Raises:
        ConfigurationError: The signal is invalid, or capture does not read this channel. No row was written.
    """
    signal = Signal(uuid.uuid4().hex, kind, json.dumps(data), datetime.now(UTC), by)
    order = parse_signal(signal)
    if isinstance(order, RejectedSignal):
        raise ConfigurationError(
            f"{kind}: {order.reason}",
            next_step="strandline snapshot --help; strandline explain capture shows every signal",
        )
    if "table" not in ctx.settings.capture.signal_enabled_channels:
        raise ConfigurationError(
            "capture.signal_enabled_channels does not contain table, so capture reads no signal from the table",
            next_step="add table to it and restart the capture",
        )
    send(ctx.tables, ctx.settings.source.name, [signal])
    return signal


def conditions_of(filters: Sequence[str]) -> list[dict[str, str]]:
    """Return ``additional-conditions`` of a signal from texts ``db.collection={…}``. Pure.

    Raises:
        ConfigurationError: A text has no name or no query.
    """
    conditions = []
    for text in filters:
        name, _, query = text.partition("=")
        if not name or not query:
            raise ConfigurationError(f"{text!r} is no filter", next_step="write it like 'db.collection={\"field\": 1}'")
        conditions.append({"data-collection": name, "filter": query})
    return conditions
