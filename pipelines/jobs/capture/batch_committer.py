"""Commits the batches of one capture to bronze, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pipelines.bronze.envelope import HEARTBEAT
from pipelines.bronze.offsets import Committed
from pipelines.bronze.writer import BronzeWriter
from pipelines.source.change_batch import ChangeBatch


class BatchCommitter:
    """Where the stream is in bronze: whoever commits moves it on."""

    def __init__(self, writer: BronzeWriter, last: Committed) -> None:
        self._writer, self.last = writer, last

    def land(self, change: ChangeBatch, snapshot_id: str | None) -> None:
        """I/O: one batch. Raises as `BronzeWriter.commit`."""
        self.last = self._writer.commit(
            change.events,
            batch=self.last.batch + 1,
            resume_token=change.resume_token,
            snapshot_id=snapshot_id,
            last_event=change.last_event or self.last.last_event,
            whole=change.ends_between_transactions,
        )

    def note(self, extra_rows: Sequence[pa.Table], snapshot_id: str | None) -> None:
        """I/O: one batch that moves no position; what it says stands *beside* it. Raises as `BronzeWriter.commit_note`."""
        last = self.last
        self.last = self._writer.commit_note(
            HEARTBEAT,
            batch=last.batch + 1,
            resume_token=last.resume_token,
            snapshot_id=snapshot_id,
            last_event=last.last_event,
            extra_rows=extra_rows,
        )
