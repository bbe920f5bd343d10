"""Read a chunk of a snapshot and commit it to bronze."""

from __future__ import annotations

import json
import logging
from contextlib import closing
from dataclasses import dataclass
from typing import Literal

from strandline.bronze.chunk_rows import ChunkStamp
from strandline.bronze.manifest_rows import manifest_row
from strandline.bronze.scheduled_rows import document_digests
from strandline.errors import ConfigurationError, StrandlineError, strandline_error
from strandline.io.delta_log.append_result import AlreadyAppended, Appended
from strandline.io.telemetry.metrics import count_documents
from strandline.jobs.capture_session import CaptureSession
from strandline.jobs.snapshot.chunk_task import ChunkReader
from strandline.jobs.snapshot.control_rows import append_control_row
from strandline.jobs.snapshot.plan import Chunk, SnapshotKind
from strandline.jobs.snapshot.progress import SnapshotProgress
from strandline.jobs.snapshot.scheduled_task import ScheduledReader
from strandline.model.namespaces import Namespace
from strandline.model.snapshot_policy import Pace, query_document
from strandline.source.client import Collection, find_incarnation, open_client, translate_errors
from strandline.source.ranges import ReadOptions
from strandline.source.scheduled_read import ReadRefused

AnyReader = ChunkReader | ScheduledReader
_log = logging.getLogger("strandline.snapshot")


@dataclass(frozen=True)
class ChunkAppender:
    """Reads chunks of one snapshot and commits each as one unit. Its lanes share it.

    Args:
        pace: Pace of each read. None: as fast as possible.
    """

    session: CaptureSession
    snapshot_id: str
    kind: SnapshotKind
    pace: Pace | None
    progress: SnapshotProgress

    def append(self, chunk: Chunk, lane: int) -> int:
        """Read and commit one chunk, and return its number of documents.

        The chunk is read under the current name of its collection. It is discarded, with a control row, if the
        collection was dropped or the filters exclude its current name.

        I/O: reads the source; one commit to bronze. Idempotent by the chunk's transaction number.
        """
        session, writer = self.session, self.session.writer
        app_id = writer.app_id(self.snapshot_id, lane)
        if chunk.key:
            return self._append_scheduled(chunk, app_id)
        with closing(open_client(session.options)) as client, translate_errors(f"looking for {chunk.collection}"):
            current = find_incarnation(client, chunk.collection)
        selected = session.selection.admits(current.db, current.name) if current is not None else None
        if current is None or not selected:
            reason = json.dumps({"namespace": str(current or chunk.collection), "selected": selected})
            append_control_row(writer, self.snapshot_id, "discarded", chunk.number, reason, app_id)
            self.progress.finish(chunk, 0, skipped="SKIPPED")
            return 0
        stamp, reading = self._stamp(chunk, current), self._reading(chunk.query)
        reader = ChunkReader(session.options, current, chunk.range, stamp, writer.stored_json, reading)
        return self._append_rows(chunk, reader, app_id)

    def _append_scheduled(self, chunk: Chunk, app_id: str) -> int:
        """Read and commit a scheduled collection: see `append`. It is discarded if the read is refused."""
        session, writer, collection = self.session, self.session.writer, chunk.collection
        digests = document_digests(writer.tables, writer.table, Namespace(collection.db, collection.name))
        stamp, reading = self._stamp(chunk, collection), self._reading(None)
        deletes = "delete" not in session.selection.skipped_operations
        try:
            return self._append_rows(
                chunk,
                ScheduledReader(
                    session.options, collection, chunk.key, stamp, writer.stored_json, reading, digests, deletes
                ),
                app_id,
            )
        except ReadRefused as error:
            _log.warning("%s is not read: %s → %s", collection, error.message, error.next_step)
            reason = json.dumps({"namespace": str(collection), "refused": error.message})
            append_control_row(writer, self.snapshot_id, "discarded", chunk.number, reason, app_id, collection)
            self.progress.finish(chunk, 0, skipped="SKIPPED")
            return 0

    def _append_rows(self, chunk: Chunk, reader: AnyReader, app_id: str) -> int:
        result = self._append_read(reader, app_id, chunk.number)
        if isinstance(result, AlreadyAppended):
            return self._finish_appended_chunk(chunk)
        documents = result.rows - 1  # the manifest is a row, too
        count_documents(documents)
        self.session.state.committed()
        self.progress.finish(chunk, documents)
        return documents

    def _reading(self, query: str | None) -> ReadOptions:
        fetch_size = self.session.settings.snapshot_fetch_size
        if self.pace is not None:
            fetch_size = min(fetch_size, self.pace.reply_documents)
        return ReadOptions(self.session.selection.fields, query_document(query), fetch_size, self.pace)

    def _stamp(self, chunk: Chunk, current: Collection) -> ChunkStamp:
        kind: Literal["true", "incremental"] = "incremental" if self.kind in ("incremental", "scheduled") else "true"
        at, capped = (0, 0), not current.snapshot_reads
        stamp = self.session.writer.stamp()
        return ChunkStamp(
            stamp, self.snapshot_id, chunk.number, current.db, current.name, current.uuid, *at, kind, capped
        )

    def _append_read(self, reader: AnyReader, app_id: str, number: int) -> Appended | AlreadyAppended:
        try:
            with self.session.reads.waiting(f"reading chunk {number} of {reader.collection}"):
                return self.session.writer.append_read(reader, app_id=app_id, sequence=number)
        except StrandlineError:
            raise
        except Exception as error:  # Spark hides it: run the query here, to raise an error that no retry can cure
            reader.check()
            if isinstance(own_error := strandline_error(error), ConfigurationError):
                raise own_error from error  # only the worker cannot read the chunk: it lacks a package or a file
            raise

    def _finish_appended_chunk(self, chunk: Chunk) -> int:
        """Mark a chunk as done that another capture of this epoch has committed. Return 0.

        The next batch of the stream decides which of the two captures is fenced.

        Raises:
            FencedError: The epoch has ended.
            BronzeRestored: A RESTORE removed the chunk from bronze.
        """
        writer, kinds = self.session.writer, ("chunk", "discarded")
        row = manifest_row(writer.tables, writer.table, self.snapshot_id, chunk.number, kinds)
        if row is None:
            raise writer.refusal(f"chunk {chunk.number} of the snapshot")
        skipped = "SKIPPED" if row["operation_type"] == "discarded" else None
        self.progress.finish(chunk, int(json.loads(row["after"]).get("documents", 0)), skipped=skipped)
        return 0
