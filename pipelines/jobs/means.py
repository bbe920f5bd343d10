"""With what a capture reads and writes, beside the stream and in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pipelines.bronze.writer import BronzeWriter
from pipelines.control.notifications import Notifications
from pipelines.control.sources import Gate
from pipelines.settings import CaptureSettings
from pipelines.source.client import AnyClient, ConnectionOptions
from pipelines.source.patience import Patience
from pipelines.source.stages import Selection

Report = Callable[[str, int], None]
"""Told what landed: ``("events", n)`` or ``("documents", n)`` since the last call."""


@dataclass(frozen=True)
class Means:
    """Built once for a run.

    Args:
        client: Opened with ``raw=True``; for the driver. Executors open their own by *options*.
    """

    writer: BronzeWriter
    options: ConnectionOptions
    client: AnyClient
    selection: Selection
    settings: CaptureSettings
    gate: Gate
    notifications: Notifications
    report: Report
    patience: Patience
