"""One snapshot: captured collections in `_id` ranges, read on the executors, each chunk one commit with its manifest."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Literal

import pyarrow as pa
from pyspark.sql import functions as F

from pipelines.bronze.chunk_rows import ChunkStamp, manifest_table
from pipelines.bronze.manifest_rows import manifest_row
from pipelines.bronze.offsets import Committed
from pipelines.bronze.writer import BronzeWriter
from pipelines.control.notifications import NotificationType
from pipelines.errors import ContractError, RetriableError, StrandlineError
from pipelines.io.append_result import AlreadyAppended, Appended
from pipelines.io.metrics import DOCUMENTS
from pipelines.jobs.capture_session import CaptureSession
from pipelines.jobs.snapshot.chunk_retries import retry_chunk
from pipelines.jobs.snapshot.chunk_task import ChunkReader
from pipelines.jobs.snapshot.plan import Chunk, Plan, is_held, make_plan, paused_seconds
from pipelines.jobs.snapshot.progress import Progress
from pipelines.model.snapshot_policy import SnapshotHook, query_document
from pipelines.model.timestamps import utc
from pipelines.source.client import find_incarnation, open_client, translate_errors
from pipelines.source.ranges import ReadOptions

_log = logging.getLogger("strandline.snapshot")
_PAUSED_SECONDS = 0.2


class SnapshotRun:
    """Runs beside the stream in threads, one for each lane; resumes at the first chunk that is not in bronze."""

    def __init__(
        self,
        session: CaptureSession,
        snapshot_id: str,
        plan: Plan,
        done: dict[int, int],
        *,
        paused: bool = False,
        ended: bool = False,
        marks: Sequence[tuple[str, datetime]] = (),
    ) -> None:
        self._session, self._writer, self._selection = session, session.writer, session.selection
        self.id, self.plan, self._ended = snapshot_id, plan, ended
        self.progress = Progress(snapshot_id, plan, done, session.notifications, held=paused)
        self._marks = list(marks)
        self._resumes = len(done)
        self._pool = ThreadPoolExecutor(max_workers=plan.lanes, thread_name_prefix="strandline-snapshot")
        self._lanes: list[Future[int]] = []
        self._stop = threading.Event()
        self.paused = paused
        self.is_whole_and_new = not done and plan.kind == "initial"

    @staticmethod
    def of(session: CaptureSession, last: Committed) -> SnapshotRun | None:
        """I/O: reads the plan of the snapshot that *last* names and what of it has landed; plans and commits it where there is none yet.
        None where no snapshot is under way. Whatever is not the first batch of all has something before it, and sweeps."""
        if last.snapshot_id is None:
            return None
        writer = session.writer
        rows = writer.tables.read(writer.table).where(
            (F.col("op") == "snapshot") & (F.col("snapshot_id") == last.snapshot_id)
        )
        found = rows.select("operation_type", "chunk", "after", "captured_at").orderBy("captured_at").collect()
        plans = [row["after"] for row in found if row["operation_type"] == "plan"]
        if not plans:
            plan = session.retry(lambda: make_plan(session, sweeps=last.batch > 1))
            if not _append_manifest(writer, last.snapshot_id, "plan", -1, plan.to_json()):
                return SnapshotRun.of(session, last)  # another capture has planned it in the meantime: that plan counts
            return SnapshotRun(session, last.snapshot_id, plan, {})
        read = [row for row in found if row["operation_type"] in ("chunk", "discarded")]
        done = {row["chunk"]: int(json.loads(row["after"]).get("documents", 0)) for row in read}
        words = [row["operation_type"] for row in found]
        plan = Plan.from_json(plans[0])
        marks = [(row["operation_type"], utc(row["captured_at"])) for row in found]
        return SnapshotRun(
            session, last.snapshot_id, plan, done, paused=is_held(words), ended="completed" in words, marks=marks
        )

    @staticmethod
    def begin(session: CaptureSession, snapshot_id: str, plan: Plan, *, paused: bool = False) -> SnapshotRun:
        """I/O: commits *plan*, and that it waits (*paused*). It is read once a batch names *snapshot_id*."""
        _append_manifest(session.writer, snapshot_id, "plan", -1, plan.to_json())
        if paused:
            _append_manifest(session.writer, snapshot_id, "paused", -1, "{}")
        return SnapshotRun(
            session, snapshot_id, plan, {}, paused=paused, marks=[("paused", datetime.now(UTC))] if paused else ()
        )

    def start(self) -> None:
        """Idempotent."""
        if self._lanes:
            return
        kind: NotificationType = "IN_PROGRESS" if self._resumes else "STARTED"
        self.progress.tell(
            kind, data_collections=self.plan.collections, chunks=len(self.plan.chunks), chunks_done=self._resumes
        )
        self._lanes = [self._pool.submit(self._run_lane, lane) for lane in range(self.plan.lanes)]

    @property
    def is_started(self) -> bool:
        return bool(self._lanes)

    @property
    def holds_stream(self) -> bool:
        """Whether the stream is to wait. Raises what a lane failed with."""
        return self.plan.kind == "blocking" and not self.paused and not self.is_read

    @property
    def is_read(self) -> bool:
        """Whether all lanes have ended, and nothing is left. Raises what a lane failed with."""
        for lane in self._lanes:
            if lane.done():
                lane.result()
        return all(lane.done() for lane in self._lanes) and self.progress.is_complete

    def completed(self) -> bool:
        """I/O: whether it is read; the row that says so has landed then."""
        if not self.is_read:
            return False
        if not self._ended:  # else an earlier run landed that row, and ended before the batch that tells of it
            content = {"chunks": len(self.plan.chunks), "documents_of_this_run": self.documents}
            _append_manifest(self._writer, self.id, "completed", len(self.plan.chunks), json.dumps(content))
            self._ended = True
        self.tell_end("COMPLETED", paused_seconds=self.paused_seconds)
        self._session.notifications.flush()
        return True

    def tell_end(self, kind: Literal["COMPLETED", "ABORTED"], **more: object) -> None:
        """Tell the notifications, and the hooks of a snapshotter, how the snapshot ended. A hook that fails stops nothing."""
        self.progress.tell(kind, data_collections=self.plan.collections, **more)
        settings = self._session.settings
        hook: SnapshotHook = "snapshot_completed" if kind == "COMPLETED" else "snapshot_aborted"
        call = getattr(settings.snapshotter, hook, None) if self.plan.kind == "initial" else None
        if call is None:
            return
        try:
            call()
        except Exception as error:  # noqa: BLE001  # why: it is somebody else's code, and the snapshot has ended all the same
            name = settings.snapshot_mode_custom_name
            _log.error("%s of the snapshotter %s failed: %s: %s", hook, name, type(error).__name__, error)

    def pause(self) -> bool:
        """Claim no more chunks. False while one is in hand, which still lands: call again."""
        if not self.paused and self.progress.hold():
            self.paused = True
            self._marks.append(("paused", datetime.now(UTC)))
        return self.paused

    def resume(self) -> None:
        """Claim chunks again."""
        self._marks.append(("resumed", datetime.now(UTC)))
        self.paused = self.progress.held = False

    @property
    def paused_seconds(self) -> float:
        """Duration of all pauses until now, in seconds, those of earlier runs included."""
        return round(paused_seconds(self._marks, datetime.now(UTC)), 3)

    @property
    def documents(self) -> int:
        """Landed by this run, as far as its lanes have ended."""
        return sum(lane.result() for lane in self._lanes if lane.done() and lane.exception() is None)

    def close(self) -> int:
        """Let the chunks in hand end, start no other; documents landed by this run."""
        self._stop.set()
        self._pool.shutdown(wait=True)
        return self.documents

    def said(self, word: str, content: str, numbers: Iterable[int] = (-1,)) -> list[pa.Table]:
        """Control rows of this snapshot, for a batch to hold. *content*: JSON."""
        stamp = ChunkStamp(self._writer.stamp(), self.id, -1, "", "", None, 0, 0)
        return [manifest_table(replace(stamp, chunk=number), word, content) for number in numbers]

    def _run_lane(self, lane: int) -> int:
        documents = 0
        self._stop.wait(self._session.settings.snapshot_delay_ms / 1000)
        for chunk in self.plan.chunks[lane :: self.plan.lanes]:
            if self._claimed(chunk):
                try:
                    documents += retry_chunk(partial(self._land, chunk, lane), self._session.retry_policy, self._stop)
                except RetriableError:
                    if self._stop.is_set():  # the next run reads it
                        break
                    raise
        return documents

    def _claimed(self, chunk: Chunk) -> bool:
        """Wait while the snapshot or its source is paused. Return True if this lane is to read *chunk*."""
        while not self._stop.is_set() and not self.progress.is_taken(chunk):
            if self.progress.held:
                self._stop.wait(_PAUSED_SECONDS)
            elif self._may_go_on() and self.progress.claim(chunk):
                return True
        return False

    def _may_go_on(self) -> bool:
        """False once this run is to end. Where the source is stopped it ends by the stream's loop; if that has not looked before the source
        is started again, the snapshot goes on."""
        while not self._session.gate.wait_until_running(self._stop):
            if self._stop.wait(_PAUSED_SECONDS):
                return False
        return True

    def _land(self, chunk: Chunk, lane: int) -> int:
        """One chunk, one commit, read under the name that the planned collection has now. One that is gone, or that the filters leave out
        under that name or since, is discarded, with a row that says so."""
        writer = self._writer
        app_id = writer.app_id(self.id, lane)
        with closing(open_client(self._session.options)) as client, translate_errors(f"looking for {chunk.collection}"):
            now = find_incarnation(client, chunk.collection)
        selected = self._selection.admits(now.db, now.name) if now is not None else None
        if now is None or not selected:
            reason = json.dumps({"namespace": str(now or chunk.collection), "selected": selected})
            _append_manifest(writer, self.id, "discarded", chunk.number, reason, app_id)
            self.progress.finish(chunk, 0, skipped="SKIPPED")
            return 0
        reading = ReadOptions(
            self._selection.fields, query_document(chunk.query), self._session.settings.snapshot_fetch_size
        )
        kind: Literal["true", "incremental"] = "incremental" if self.plan.kind == "incremental" else "true"
        stamp = ChunkStamp(writer.stamp(), self.id, chunk.number, now.db, now.name, now.uuid, 0, 0, kind, now.capped)
        reader = ChunkReader(self._session.options, now, chunk.range, stamp, writer.stored_json, reading)
        try:
            landed = writer.append_read(reader, app_id=app_id, sequence=chunk.number)
        except StrandlineError:
            raise
        except Exception:  # Spark does not tell what its executor met: what fails for good is found out here
            with suppress(ContractError):  # it was dropped meanwhile, and the next attempt discards the chunk
                reader.check()
            raise
        if isinstance(landed, AlreadyAppended):
            return self._landed_by_another(chunk)
        documents = landed.rows - 1  # the manifest is a row, too
        DOCUMENTS.inc(documents)
        self._session.report("documents", documents)
        self.progress.finish(chunk, documents)
        return documents

    def _landed_by_another(self, chunk: Chunk) -> int:
        """Go on behind a chunk that another capture of this lineage landed: the stream's next batch decides which of them ends.

        Raises:
            FencedError: The lineage has ended.
            BronzeRestored: A RESTORE took the chunk out of bronze.
        """
        row = manifest_row(self._writer.tables, self._writer.table, self.id, chunk.number, ("chunk", "discarded"))
        if row is None:
            raise self._writer.refusal(f"chunk {chunk.number} of the snapshot")
        skipped = "SKIPPED" if row["operation_type"] == "discarded" else None
        self.progress.finish(chunk, int(json.loads(row["after"]).get("documents", 0)), skipped=skipped)
        return 0


def _append_manifest(
    writer: BronzeWriter, snapshot_id: str, what: str, number: int, content: str, app_id: str | None = None
) -> bool:
    """One control row of the snapshot, exactly once. False: another capture of this lineage landed it.

    Raises:
        FencedError: The lineage has ended.
        BronzeRestored: A RESTORE took the row out of bronze.
    """
    stamp = ChunkStamp(writer.stamp(), snapshot_id, number, "", "", None, 0, 0)
    rows, app_id = manifest_table(stamp, what, content), app_id or writer.app_id(snapshot_id, what)
    if isinstance(writer.append_once(rows, app_id=app_id, sequence=max(number, 0)), Appended):
        return True
    words = ("chunk", "discarded") if what == "discarded" else (what,)
    if manifest_row(writer.tables, writer.table, snapshot_id, number, words) is None:
        raise writer.refusal(f"the {what} row of the snapshot")
    return False
