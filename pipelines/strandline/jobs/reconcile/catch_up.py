"""Wait until bronze and silver hold every change up to a cluster time. Nothing is captured or merged here."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from strandline.bronze.offsets import committed
from strandline.errors import RetriableError
from strandline.jobs.context import JobContext
from strandline.jobs.silver.table_names import table_of
from strandline.model.namespaces import Namespace
from strandline.model.table_schemas import bronze_table
from strandline.silver.bronze_increment import BronzeIncrement
from strandline.silver.progress_index import ProgressIndex
from strandline.silver.silver_table import SilverTable
from strandline.source.oplog import Oplog

_POLL_SECONDS = 1.0


@dataclass(frozen=True)
class CatchUpBarrier:
    """Waits until bronze and silver have passed a cluster time."""

    ctx: JobContext
    oplog: Oplog
    wait_seconds: float
    """Maximum wait for bronze, and again for silver. A capture and a silver run may be at work meanwhile."""

    def wait(self, at: tuple[int, int], namespaces: Sequence[Namespace]) -> None:
        """Wait until silver holds every change of *namespaces* up to cluster time *at*.

        I/O: asks the oplog; reads bronze and silver once per second.

        Raises:
            RetriableError: Bronze or silver is still behind after the wait, or a snapshot is running.
        """
        version = self._bronze_through(at)
        deadline = time.monotonic() + self.wait_seconds
        while behind := self._behind(namespaces, version):
            if time.monotonic() >= deadline:
                more = f" and {len(behind) - 1} more" if len(behind) > 1 else ""
                raise RetriableError(
                    f"silver lacks what bronze has of {behind[0]}{more}", next_step="strandline silver, then again"
                )
            time.sleep(_POLL_SECONDS)

    def _bronze_through(self, at: tuple[int, int]) -> int:
        """Wait for every event up to *at*. Return the version of bronze that holds them."""
        bronze = bronze_table(self.ctx.settings.source.name)
        deadline = time.monotonic() + self.wait_seconds
        while True:
            last = committed(self.ctx.tables, bronze)
            snapshot_runs = last is not None and last.snapshot_id is not None
            if (
                last is not None
                and last.resume_token is not None
                and not snapshot_runs
                and self.oplog.has_no_events(last.resume_token, at)
            ):
                return self.ctx.tables.version(bronze)
            if time.monotonic() >= deadline:
                reason = "a snapshot still runs" if snapshot_runs else "bronze lacks events that the source has"
                raise RetriableError(
                    f"{reason}: there is nothing to compare yet", next_step="strandline run --once, then again"
                )
            time.sleep(_POLL_SECONDS)

    def _behind(self, namespaces: Sequence[Namespace], version: int) -> list[Namespace]:
        """Return the collections with changes in bronze that their table lacks.

        The progress index may lag behind by heartbeats, so the increment itself is read.
        """
        tables, bronze = self.ctx.tables, bronze_table(self.ctx.settings.source.name)
        progress_index = ProgressIndex.read(tables, bronze)
        lagging: dict[int, list[Namespace]] = {}
        for namespace in namespaces:
            progress = SilverTable(tables, table_of(self.ctx, namespace)).progress()
            merged = (
                progress_index.complete_through
                if progress is None
                else progress_index.reached_version(namespace, progress)
            )
            if merged < version:
                lagging.setdefault(merged, []).append(namespace)
        return [
            name
            for merged, names in lagging.items()
            if not BronzeIncrement.read(tables, bronze, merged, version).is_empty
            for name in names
        ]
