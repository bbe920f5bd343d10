"""Lineage of a capture: one run per process, told at its beginning, at the pace of heartbeats, and at its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from strandline.io.tables.lineage import LineageRun, is_told
from strandline.model.lineage import Dataset, Input, Job, Output
from strandline.model.table_schemas import bronze_table
from strandline.model.tables import Lake
from strandline.settings.configuration import Settings
from strandline.source.uri import hosts_of


class CaptureLineage:
    """The run of one capture. Snapshot lanes and the stream call it from several threads."""

    def __init__(self, settings: Settings, lake: Lake) -> None:
        source = settings.source.name
        self._bronze = Output(Dataset.of_table(lake, bronze_table(source)), 0)
        self._run = LineageRun(Job(f"capture.{source}", "CAPTURE", streams=True), outputs=(self._bronze,))
        self._interval = settings.capture.heartbeat_interval_ms / 1000
        self._rows, self._told_at, self._begun = 0, 0.0, False
        self._lock = threading.Lock()

    def begin(self, uri: str, captured: Sequence[str]) -> None:
        """Tell START, once, when the source and bronze are open.

        Args:
            uri: Connection string. Only its hosts are told.
            captured: Names of the captured collections.
        """
        if self._begun or not is_told():
            return
        hosts = hosts_of(uri)
        self._run.inputs = tuple(Input(Dataset.of_collection(hosts, collection)) for collection in captured)
        self._run.tell("START")
        self._begun, self._told_at = True, time.monotonic()

    def add_rows(self, rows: int) -> None:
        """Count the rows of a commit. Tell RUNNING if the last report is older than a heartbeat."""
        with self._lock:
            self._rows += rows
            if not self._begun or time.monotonic() - self._told_at < self._interval:
                return
            self._told_at = time.monotonic()
            self._update()
        self._run.tell("RUNNING")

    def end(self, failure: Exception | None = None, *, stopped: bool = False) -> None:
        """Tell the end: FAIL with *failure*; ABORT if somebody *stopped* the run; else COMPLETE."""
        if self._begun:
            self._update()
            self._run.tell("FAIL" if failure is not None else "ABORT" if stopped else "COMPLETE", failure)

    def _update(self) -> None:
        self._run.outputs = (replace(self._bronze, rows=self._rows),)
