"""Whether the lake holds everything that the source had done at one cluster time; nothing is captured or merged here."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.bronze.offsets import committed
from pipelines.errors import RetriableError
from pipelines.jobs.context import JobContext
from pipelines.jobs.silver.table_names import table_of
from pipelines.model.namespaces import Namespace
from pipelines.model.table_schemas import bronze_table
from pipelines.silver.bronze_increment import BronzeIncrement
from pipelines.silver.progress_index import ProgressIndex
from pipelines.silver.silver_table import SilverTable
from pipelines.source.oplog import Oplog

_POLL_SECONDS = 1.0


@dataclass(frozen=True)
class CatchUpBarrier:
    """Waits until bronze and silver have passed a cluster time.

    Args:
        wait_seconds: Longest wait for each of the two, for a capture and a silver that run beside.
    """

    ctx: JobContext
    oplog: Oplog
    wait_seconds: float

    def wait(self, at: tuple[int, int], namespaces: Sequence[Namespace]) -> None:
        """I/O: returns when every change up to *at* of these collections stands in silver.

        Raises:
            RetriableError: It does not; nobody captures or merges, or a snapshot still runs.
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
        """The version of bronze that holds every event up to *at*."""
        bronze = bronze_table(self.ctx.settings.source.name)
        deadline = time.monotonic() + self.wait_seconds
        while True:
            last = committed(self.ctx.tables, bronze)
            snapshot_runs = last is not None and last.snapshot_id is not None
            if (
                last is not None
                and last.resume_token is not None
                and not snapshot_runs
                and self.oplog.silent(last.resume_token, at)
            ):
                return self.ctx.tables.version(bronze)
            if time.monotonic() >= deadline:
                what = "a snapshot still runs" if snapshot_runs else "bronze lacks events that the source has"
                raise RetriableError(
                    f"{what}: there is nothing to compare yet", next_step="strandline run --once, then again"
                )
            time.sleep(_POLL_SECONDS)

    def _behind(self, namespaces: Sequence[Namespace], version: int) -> list[Namespace]:
        """Those with news in bronze that their table does not hold. The ledger is not stored for heartbeats alone."""
        tables, bronze = self.ctx.tables, bronze_table(self.ctx.settings.source.name)
        progress_index = ProgressIndex.read(tables, tables.id(bronze))
        found: dict[int, list[Namespace]] = {}
        for namespace in namespaces:
            progress = SilverTable(tables, table_of(self.ctx, namespace)).progress()
            complete = (
                progress_index.complete_through
                if progress is None
                else progress_index.reached_version(namespace, progress)
            )
            if complete < version:
                found.setdefault(complete, []).append(namespace)
        return [
            name
            for complete, names in found.items()
            if not BronzeIncrement.read(tables, bronze, complete, version).is_empty
            for name in names
        ]
