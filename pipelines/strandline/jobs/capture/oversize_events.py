"""Oversize events: write a dead letter for each one, and read its document again by key."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from strandline.bronze.appender import BronzeAppender
from strandline.bronze.chunk_rows import ChunkStamp, read_table
from strandline.bronze.event import ChangeEvent, parse_event
from strandline.control.dead_letters import DeadLetter, DeadLetters
from strandline.errors import ConfigurationError
from strandline.jobs.capture_session import CaptureSession
from strandline.model.bson import raw as rb
from strandline.settings.capture import CaptureSettings
from strandline.source.change_batch import ChangeBatch
from strandline.source.client import AnyClient, Collection
from strandline.source.deployment import Deployment
from strandline.source.document_reread import RereadDocument, reread_document
from strandline.source.event_assembler import document_label
from strandline.source.oversize_events import IMAGE_FIELDS, OversizeEvent
from strandline.source.stages import Selection

REREAD = "reread"
"""Snapshot id of a READ that belongs to no snapshot."""


@dataclass(frozen=True)
class OversizeEvents:
    """The policy ``capture.cursor_oversize_handling_mode``, for one run of a capture."""

    session: CaptureSession

    def before_commit(self, change: ChangeBatch) -> ChangeBatch:
        """Write dead letters for oversize events, and read the documents of events that MongoDB could not send.

        I/O: writes dead letters first, then appends READs to bronze. Idempotent: a dead letter has an id, and of two
        READs the one with the larger position wins.

        Call it before the events themselves are committed: then silver has the READ when it folds a later patch.

        Raises:
            ConfigurationError: The policy is not ``skip``. The dead letters are written; bronze is unchanged.
            RetriableError: The source did not answer within the retries.
        """
        oversize = change.oversize_events
        events = [parse_event(oversize_event.event) for oversize_event in oversize]
        now = datetime.now(UTC)
        DeadLetters(self.session.writer.tables).add(
            [self._letter(*pair, now) for pair in zip(oversize, events, strict=True)]
        )
        for oversize_event, event in zip(oversize, events, strict=True):
            if oversize_event.refused_by_server:
                self._append_document(event)
        return change

    def _append_document(self, event: ChangeEvent) -> None:
        if self.session.settings.cursor_oversize_handling_mode != "skip":
            name = document_label(event.raw, show_keys=self.session.show_keys)
            raise ConfigurationError(
                f"an event of {name} exceeds 16 MiB, the largest that MongoDB can send "
                f"({event.operation_type}); all events before it are in bronze",
                next_step="set capture.cursor_oversize_handling_mode: skip (or split, with MongoDB 6.0.9 or newer); "
                "strandline dead-letters list shows the key",
            )
        session, collection = self.session, Collection(event.db or "", event.collection or "", event.collection_uuid)
        document = session.retry(
            lambda: reread_event_document(session.client, event.raw, collection, session.selection)
        )
        if document is not None:
            append_reread(session.writer, document)

    def _letter(self, oversize: OversizeEvent, event: ChangeEvent, now: datetime) -> DeadLetter:
        size = (
            "16 MiB, the largest that MongoDB can send"
            if oversize.document_bytes is None
            else f"the threshold ({oversize.document_bytes} bytes)"
        )
        left_out = [name for name in IMAGE_FIELDS if name.encode() not in event.spans]
        return DeadLetter(
            source=self.session.writer.source,
            stage="read",
            error_class="OversizeEvent",
            message=f"{event.operation_type} event above {size}: landed without {', '.join(left_out)}",
            position=event.position,
            db=event.db,
            collection=event.collection,
            collection_uuid=event.collection_uuid,
            key=event.key,
            attempts=oversize.attempts,
            at=now,
            raw=oversize.event,
        )


def reread_event_document(
    client: AnyClient, event: bytes, collection: Collection, selection: Selection
) -> RereadDocument | None:
    """Return the current document of *event*, by its key.

    I/O: reads the source. None: the event has no key, or `reread_document` returns None.
    """
    key = rb.field(event, b"documentKey")
    identifier = rb.field(event, b"_id", key[1]) if key is not None else None
    if identifier is None:
        return None
    kind, value, end = identifier
    return reread_document(client, collection, (kind, event[value:end]), selection)


def append_reread(writer: BronzeAppender, reread: RereadDocument) -> None:
    """Append one READ to bronze.

    I/O: one commit. Not fenced, because of several READs the one with the larger position wins.
    """
    collection = reread.collection
    stamp = ChunkStamp(
        writer.stamp(),
        REREAD,
        0,
        collection.db,
        collection.name,
        collection.uuid,
        reread.seconds,
        reread.increment,
        capped=not collection.snapshot_reads,
    )
    writer.append(read_table([reread.document], stamp, stored_json=writer.stored_json))


def check_oversize(settings: CaptureSettings, deployment: Deployment) -> None:
    """Check the oversize settings against the server.

    Raises:
        ConfigurationError: The server cannot split events, or a threshold is set without mode ``skip``.
    """
    if settings.cursor_oversize_handling_mode == "split" and not deployment.splits_large_events:
        raise ConfigurationError(
            "capture.cursor_oversize_handling_mode split needs $changeStreamSplitLargeEvent, "
            f"which MongoDB {deployment.version} does not have (6.0.9 and newer have it)",
            next_step="set it to skip, which reads the document again by its key, or update MongoDB",
        )
    if settings.cursor_oversize_skip_threshold and settings.cursor_oversize_handling_mode != "skip":
        raise ConfigurationError(
            "capture.cursor_oversize_skip_threshold is set without cursor_oversize_handling_mode: skip",
            next_step="set both, or neither",
        )
