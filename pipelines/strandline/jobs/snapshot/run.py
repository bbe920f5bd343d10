"""One snapshot: read ranges of `_id` on the executors. Each chunk is one commit with its manifest."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from typing import Literal

import pyarrow as pa

from strandline.bronze.chunk_rows import ChunkStamp, manifest_table
from strandline.bronze.offsets import Committed
from strandline.control.notifications import NotificationType
from strandline.errors import RetriableError
from strandline.io.telemetry.progress import PROGRESS, Step
from strandline.jobs.capture_session import CaptureSession
from strandline.jobs.snapshot.chunk_append import ChunkAppender
from strandline.jobs.snapshot.chunk_retries import retry_chunk
from strandline.jobs.snapshot.control_rows import append_control_row, read_control_rows
from strandline.jobs.snapshot.governor import SnapshotGovernor
from strandline.jobs.snapshot.plan import Chunk, Plan, make_plan, paused_seconds
from strandline.jobs.snapshot.progress import SnapshotProgress
from strandline.model.snapshot_policy import SnapshotHook
from strandline.source.load_probe import LoadProbe

_log = logging.getLogger("strandline.snapshot")
_POLL_SECONDS = 0.2


class SnapshotRun:
    """A snapshot that runs beside the stream, with one thread per lane. It reads only chunks that are not in bronze
    yet.

    Args:
        done: Chunks that earlier runs have finished: chunk number → number of documents.
        ended: An earlier run has committed the completion row.
        control_history: ``operation_type`` and time of the control rows so far, oldest first.
    """

    def __init__(
        self,
        session: CaptureSession,
        snapshot_id: str,
        plan: Plan,
        finished_chunks: dict[int, int],
        *,
        paused: bool = False,
        ended: bool = False,
        control_history: Sequence[tuple[str, datetime]] = (),
    ) -> None:
        self._session, self._writer, self._selection = session, session.writer, session.selection
        self.id, self.plan, self._ended = snapshot_id, plan, ended
        self.progress = SnapshotProgress(snapshot_id, plan, finished_chunks, session.notifications, paused=paused)
        self._control_history = list(control_history)
        self._done_before = len(finished_chunks)
        self._pool = ThreadPoolExecutor(max_workers=plan.lanes, thread_name_prefix="strandline-snapshot")
        self._lanes: list[Future[int]] = []
        self._stop = threading.Event()
        self.paused = paused
        self._shown, self._step = ExitStack(), Step("snapshot")
        settings = session.settings
        self.governor = SnapshotGovernor(LoadProbe(session.client).read if settings.snapshot_slow_under_load else None)
        self.rate_limit = settings.snapshot_max_documents_per_second or None
        self._pace = settings.pace_of(max(1, min(plan.lanes, len(plan.chunks))))
        self._appender = ChunkAppender(session, snapshot_id, plan.kind, self._pace, self.progress)
        self.is_new_initial = not finished_chunks and plan.kind == "initial"

    @staticmethod
    def resume_or_plan(session: CaptureSession, last: Committed) -> SnapshotRun | None:
        """Return the snapshot that the batch *last* names. None: the batch names no snapshot.

        I/O: reads the plan and the finished chunks from bronze. If there is no plan, lists the source's collections and
        commits one. A snapshot that starts after the first batch also sweeps.
        """
        if last.snapshot_id is None:
            return None
        control = read_control_rows(session.writer, last.snapshot_id)
        if control is None:
            plan = session.retry(lambda: make_plan(session, sweeps=last.batch > 1))
            if not append_control_row(session.writer, last.snapshot_id, "plan", -1, plan.to_json()):
                return SnapshotRun.resume_or_plan(session, last)  # another capture has committed its plan first
            return SnapshotRun(session, last.snapshot_id, plan, {})
        return SnapshotRun(
            session,
            last.snapshot_id,
            control.plan,
            control.finished_chunks,
            paused=control.paused,
            ended=control.ended,
            control_history=control.history,
        )

    @staticmethod
    def create(session: CaptureSession, snapshot_id: str, plan: Plan, *, paused: bool = False) -> SnapshotRun:
        """Create a snapshot. Its chunks are read after a batch names *snapshot_id*.

        I/O: appends *plan* to bronze, and a pause if *paused* is set.
        """
        append_control_row(session.writer, snapshot_id, "plan", -1, plan.to_json())
        if paused:
            append_control_row(session.writer, snapshot_id, "paused", -1, "{}")
        history = [("paused", datetime.now(UTC))] if paused else []
        return SnapshotRun(session, snapshot_id, plan, {}, paused=paused, control_history=history)

    def start(self) -> None:
        """Start the lanes. Idempotent."""
        if self._lanes:
            return
        kind: NotificationType = "IN_PROGRESS" if self._done_before else "STARTED"
        self.progress.notify(
            kind, data_collections=self.plan.collections, chunks=len(self.plan.chunks), chunks_done=self._done_before
        )
        self._step = self._shown.enter_context(PROGRESS.step("snapshot", "chunks", len(self.plan.chunks)))
        self._step.count = self._step.earlier = self._done_before
        self._lanes = [self._pool.submit(self._run_lane, lane) for lane in range(self.plan.lanes)]

    @property
    def is_started(self) -> bool:
        return bool(self._lanes)

    @property
    def holds_stream(self) -> bool:
        """Return True if the stream must wait for this snapshot. Raises the error of a failed lane."""
        return self.plan.kind == "blocking" and not self.paused and not self.is_fully_read

    @property
    def is_fully_read(self) -> bool:
        """Return True if all lanes have ended and all chunks are done. Raises the error of a failed lane."""
        for lane in self._lanes:
            if lane.done():
                lane.result()
        return all(lane.done() for lane in self._lanes) and self.progress.is_complete

    def commit_completion(self) -> bool:
        """Return True if the snapshot is fully read. Its completion row is committed then.

        I/O: appends the completion row to bronze; writes notifications.
        """
        if not self.is_fully_read:
            return False
        if not self._ended:  # an earlier run may have committed the row and crashed before the next batch
            chunks = len(self.plan.chunks)
            content = json.dumps({"chunks": chunks, "documents_of_this_run": self.documents})
            append_control_row(self._writer, self.id, "completed", chunks, content)
            self._ended = True
        self.notify_end("COMPLETED", paused_seconds=self.paused_seconds)
        self._session.notifications.flush()
        return True

    def notify_end(self, kind: Literal["COMPLETED", "ABORTED"], **details: object) -> None:
        """Send a notification of the end, and call the snapshotter's hook. An error of the hook is only logged."""
        self._shown.close()
        self.progress.notify(kind, data_collections=self.plan.collections, **details)
        settings = self._session.settings
        hook: SnapshotHook = "snapshot_completed" if kind == "COMPLETED" else "snapshot_aborted"
        call = getattr(settings.snapshotter, hook, None) if self.plan.kind == "initial" else None
        if call is None:
            return
        try:
            call()
        except Exception as error:  # noqa: BLE001  # why: it is a user's code, and the snapshot has ended
            name = settings.snapshot_mode_custom_name
            _log.error("%s of the snapshotter %s failed: %s: %s", hook, name, type(error).__name__, error)

    def pause(self) -> bool:
        """Claim no more chunks. Return False while a chunk is in progress: call again after its commit."""
        if not self.paused and self.progress.pause():
            self.paused = True
            self._control_history.append(("paused", datetime.now(UTC)))
        return self.paused

    def resume(self) -> None:
        """Claim chunks again."""
        self._control_history.append(("resumed", datetime.now(UTC)))
        self.paused = self.progress.paused = False

    @property
    def paused_seconds(self) -> float:
        """Total duration of the pauses until now, in seconds. Pauses in earlier runs count."""
        return round(paused_seconds(self._control_history, datetime.now(UTC)), 3)

    @property
    def documents(self) -> int:
        """Number of documents that the ended lanes of this run have committed."""
        return sum(lane.result() for lane in self._lanes if lane.done() and lane.exception() is None)

    def close(self) -> int:
        """Wait for the chunks in progress; start no more.

        Return the number of documents that this run has committed.
        """
        self._stop.set()
        self._pool.shutdown(wait=True)
        self.governor.close()
        self._shown.close()
        return self.documents

    def control_rows(self, kind: str, content: str, chunks: Iterable[int] = (-1,)) -> list[pa.Table]:
        """Return control rows of this snapshot, one per chunk, for the next batch.

        Args:
            kind: ``operation_type`` of the rows.
            content: JSON.
            chunks: Chunk numbers. -1: the snapshot as a whole.
        """
        stamp = self._writer.stamp()
        return [manifest_table(ChunkStamp.of_control(stamp, self.id, number), kind, content) for number in chunks]

    def _run_lane(self, lane: int) -> int:
        documents, ready_at = 0, 0.0
        self._stop.wait(self._session.settings.snapshot_delay_ms / 1000)
        for chunk in self.plan.chunks[lane :: self.plan.lanes]:
            if self._wait_and_claim(chunk, ready_at):
                began = time.monotonic()
                try:
                    count = retry_chunk(
                        chunk, partial(self._read_chunk, chunk, lane), self._session.retry_policy, self._stop
                    )
                except RetriableError:
                    if self._stop.is_set():  # the next run reads it
                        break
                    raise
                documents += count
                self._session.report("documents", count)  # outside the retries: an error of the caller's ends the run
                self._step.count = self.progress.chunks_done
                self._step.item = f"{sum(self.progress.documents.values()):,} documents, {chunk.collection}"
                ready_at = 0.0 if self._pace is None else began + self._pace.seconds_for(count)
        return documents

    def _wait_and_claim(self, chunk: Chunk, ready_at: float) -> bool:
        """Wait while the snapshot or its source is paused, or the governor holds the chunk back.

        Return True if this lane has claimed *chunk*.

        Args:
            ready_at: As of `SnapshotGovernor.wait_for_turn`.
        """
        while not self._stop.is_set() and not self.progress.is_taken(chunk):
            if self.progress.paused:
                self._stop.wait(_POLL_SECONDS)
                continue
            may_begin = self.governor.wait_for_turn(ready_at, self._stop) and self._wait_for_gate()
            if may_begin and self.progress.claim(chunk):
                return True
        return False

    def _wait_for_gate(self) -> bool:
        """Wait while the source is paused or stopped. Return False if this run must end.

        The stream's loop ends a stopped run. If the source restarts before the loop checks, the snapshot continues.
        """
        while not self._session.gate.wait_until_running(self._stop):
            if self._stop.wait(_POLL_SECONDS):
                return False
        return True

    def _read_chunk(self, chunk: Chunk, lane: int) -> int:
        return self._appender.append(chunk, lane)
