"""Events that came without their heavy parts: a dead letter for each, and the document read again by its key before the event lands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pipelines.bronze.appender import BronzeAppender
from pipelines.bronze.chunk_rows import ChunkStamp, read_table
from pipelines.bronze.event import ChangeEvent, parse_event
from pipelines.control.dead_letters import DeadLetter, DeadLetters
from pipelines.errors import ConfigurationError
from pipelines.jobs.capture_session import CaptureSession
from pipelines.model.bson import raw as rb
from pipelines.settings.capture import CaptureSettings
from pipelines.source.client import AnyClient, Collection
from pipelines.source.deployment import Deployment
from pipelines.source.document_reread import RereadDocument, reread_document
from pipelines.source.event_assembler import document_label
from pipelines.source.oversize_events import IMAGE_FIELDS, OversizeEvent
from pipelines.source.stages import Selection

REREAD = "reread"
"""Stands as the snapshot of a READ that belongs to none."""


@dataclass(frozen=True)
class OversizeEvents:
    """What `capture` does with them, by ``cursor_oversize_handling_mode``."""

    session: CaptureSession

    def land(self, asides: Sequence[OversizeEvent]) -> None:
        """I/O: dead letters, then READs into bronze; the caller commits the events themselves after it.

        A READ lands before the event does: no patch above the event can meet silver before the READ that contains the event. Idempotent:
        the dead letters by their id, the READs because the larger position wins.

        Raises:
            ConfigurationError: Such events shall stop the capture. Their dead letters are there; of bronze nothing was written.
            RetriableError: The source was waited for in vain.
        """
        events = [parse_event(aside.event) for aside in asides]
        now = datetime.now(UTC)
        DeadLetters(self.session.writer.tables).add(
            [self._letter(*pair, now) for pair in zip(asides, events, strict=True)]
        )
        for aside, event in zip(asides, events, strict=True):
            if aside.refused_by_server:
                self._read_instead(event)

    def _read_instead(self, event: ChangeEvent) -> None:
        if self.session.settings.cursor_oversize_handling_mode != "skip":
            raise ConfigurationError(
                f"an event of {document_label(event.raw, show_keys=self.session.show_keys)} exceeds 16 MiB,"
                f" the largest that MongoDB can send ({event.operation_type}); all before it has landed",
                next_step="set capture.cursor_oversize_handling_mode: skip (or split, with MongoDB 6.0.9 or newer); "
                "strandline dead-letters list shows the key",
            )
        session, where = self.session, Collection(event.db or "", event.collection or "", event.collection_uuid)
        again = session.retry(lambda: reread_of(session.client, event.raw, where, session.selection))
        if again is not None:
            land_reread(session.writer, again)

    def _letter(self, aside: OversizeEvent, event: ChangeEvent, now: datetime) -> DeadLetter:
        size = (
            "16 MiB, the largest that MongoDB can send"
            if aside.document_bytes is None
            else f"the threshold ({aside.document_bytes} bytes)"
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
            attempts=aside.attempts,
            at=now,
            raw=aside.event,
        )


def reread_of(client: AnyClient, event: bytes, collection: Collection, selection: Selection) -> RereadDocument | None:
    """I/O: the document of an event as it is now; None as of `reread_document`, or where the event has none."""
    key = rb.field(event, b"documentKey")
    identifier = rb.field(event, b"_id", key[1]) if key is not None else None
    if identifier is None:
        return None
    kind, value, end = identifier
    return reread_document(client, collection, (kind, event[value:end]), selection)


def land_reread(writer: BronzeAppender, again: RereadDocument) -> None:
    """I/O: one commit with one READ. Not fenced: whoever writes it, and how often, the larger position wins."""
    where = again.collection
    stamp = ChunkStamp(
        writer.stamp(), REREAD, 0, where.db, where.name, where.uuid, again.seconds, again.increment, capped=where.capped
    )
    writer.append(read_table([again.document], stamp, stored_json=writer.stored_json))


def check_oversize(settings: CaptureSettings, deployment: Deployment) -> None:
    """Raises ConfigurationError where the server cannot split, or a threshold stands for nothing."""
    if settings.cursor_oversize_handling_mode == "split" and not deployment.splits_large_events:
        raise ConfigurationError(
            f"capture.cursor_oversize_handling_mode split needs $changeStreamSplitLargeEvent, which MongoDB {deployment.version} has not"
            " (6.0.9 and newer have)",
            next_step="set it to skip, which reads the document again by its key, or update MongoDB",
        )
    if settings.cursor_oversize_skip_threshold and settings.cursor_oversize_handling_mode != "skip":
        raise ConfigurationError(
            "capture.cursor_oversize_skip_threshold stands without cursor_oversize_handling_mode: skip",
            next_step="set both, or none",
        )
