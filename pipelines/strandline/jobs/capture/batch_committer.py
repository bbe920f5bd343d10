"""Commit the batches of one capture to bronze, in order."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

import pyarrow as pa

from strandline.bronze.envelope import HEARTBEAT
from strandline.bronze.offsets import Committed
from strandline.io.telemetry.tracing import Value, annotate, is_traced, span
from strandline.jobs.capture_session import CaptureSession
from strandline.source.change_batch import ChangeBatch


class BatchCommitter:
    """Commits batches and keeps the last committed offset.

    Args:
        last: Offset that bronze holds at the start.
    """

    def __init__(self, session: CaptureSession, last: Committed) -> None:
        self._writer, self.last, self._state = session.writer, last, session.state

    def commit(self, change: ChangeBatch, snapshot_id: str | None) -> None:
        """Commit the change events of one batch.

        I/O: appends one batch to bronze. Raises the errors of `BronzeWriter.commit`.

        Args:
            snapshot_id: Snapshot under way. None: no snapshot.
        """
        with self._span(events=len(change.events), snapshot=snapshot_id):
            if is_traced():
                size = sum(map(len, change.events))
                annotate(bytes=size, first_cluster_time=change.first_event, last_cluster_time=change.last_event)
            self.last = self._writer.commit(
                change.events,
                batch=self.last.batch + 1,
                resume_token=change.resume_token,
                snapshot_id=snapshot_id,
                last_event=change.last_event or self.last.last_event,
                ends_outside_transaction=change.ends_outside_transaction,
            )
        self._state.committed()

    def commit_control_rows(self, rows: Sequence[pa.Table], snapshot_id: str | None) -> None:
        """Commit one batch of control rows. The resume token stays the same.

        I/O: appends one batch to bronze: *rows* and a heartbeat row. Raises the errors of `BronzeWriter.commit_note`.

        Args:
            snapshot_id: Snapshot under way. None: no snapshot.
        """
        last = self.last
        with self._span(events=0, snapshot=snapshot_id):
            self.last = self._writer.commit_note(
                HEARTBEAT,
                batch=last.batch + 1,
                resume_token=last.resume_token,
                snapshot_id=snapshot_id,
                last_event=last.last_event,
                extra_rows=rows,
            )
        self._state.committed()

    def _span(self, **attributes: Value) -> AbstractContextManager[None]:
        table = str(self._writer.table)
        return span("capture batch", source=self._writer.source, table=table, batch=self.last.batch + 1, **attributes)
