"""A signal from the command line or a notebook: a row that a running capture finds, or the next one at its start."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pipelines.control.signal_inbox import send
from pipelines.errors import ConfigurationError
from pipelines.jobs.context import JobContext
from pipelines.model.signal import Refused, Signal, order_of


def send_signal(ctx: JobContext, kind: str, data: Mapping[str, Any], *, by: str) -> Signal:
    """I/O: one row in ``control.signals``.

    Args:
        kind: ``execute-snapshot``, ``stop-snapshot``, ``pause-snapshot``, ``resume-snapshot`` or ``log``.

    Raises:
        ConfigurationError: Nobody could act upon it, or nobody listens; nothing was written.
    """
    signal = Signal(uuid.uuid4().hex, kind, json.dumps(data), datetime.now(UTC), by)
    order = order_of(signal)
    if isinstance(order, Refused):
        raise ConfigurationError(
            f"{kind}: {order.reason}", next_step="strandline snapshot --help; docs/capture.md shows every signal"
        )
    if "table" not in ctx.settings.capture.signal_enabled_channels:
        raise ConfigurationError(
            "capture.signal_enabled_channels leaves the table out",
            next_step="add table to it and start the capture anew",
        )
    send(ctx.tables, ctx.settings.source.name, [signal])
    return signal


def conditions_of(filters: Sequence[str]) -> list[dict[str, str]]:
    """``additional-conditions`` from ``db.collection={…}``.

    Raises:
        ConfigurationError: One has no name, or no query.
    """
    found = []
    for text in filters:
        name, _, query = text.partition("=")
        if not name or not query:
            raise ConfigurationError(f"{text!r} is no filter", next_step="write it like 'db.collection={\"field\": 1}'")
        found.append({"data-collection": name, "filter": query})
    return found
