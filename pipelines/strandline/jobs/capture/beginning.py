"""Beginning of a capture: the first batch of a stream, the batch of a new snapshot, and the end of a run ``--once``."""

from __future__ import annotations

import logging
import uuid

from strandline.bronze.gaps import commit_gap
from strandline.bronze.offsets import Committed
from strandline.bronze.writer import BronzeWriter
from strandline.jobs.capture.collection_starts import commit_first_starts, start_times
from strandline.jobs.capture_session import CaptureSession
from strandline.jobs.offset_target import configured_start
from strandline.source.client import token_data
from strandline.source.oplog import Oplog
from strandline.source.resume import ResumePoint, resume_point

_log = logging.getLogger("strandline.capture")


def commit_first_batch(session: CaptureSession, last: Committed | None) -> Committed:
    """Commit the token of the stream's start, before the snapshot reads its first chunk.

    I/O: reads the source; appends one empty batch to bronze. After a reset it is a gap, which a snapshot may heal.

    Args:
        last: Offset before a reset. None: nothing was captured before.

    Raises:
        ConfigurationError: No stream can start at ``capture.start_at``, or at a time of ``capture.starts``.
    """
    writer, oplog, settings = session.writer, session.oplog, session.settings
    snapshot_id = uuid.uuid4().hex if settings.snapshot_policy.first else None
    if last is None:
        others, starts = configured_start(settings.start_at, oplog), start_times(session, settings.starts)
        begins = min((at for at in (others, *starts.values()) if at is not None), default=None)
        token = oplog.token_at(resume_point(configured=begins))
        if starts:
            commit_first_starts(session, starts, others)
        return writer.commit([], batch=1, resume_token=token, snapshot_id=snapshot_id)
    # A reset may follow a lost history, and start_at would lose it again: after a reset, start at the present.
    token = oplog.token_at()
    if snapshot_id is None:
        _log.warning(
            "after the reset, capture continues at the source's present and reads no collection again "
            "(capture.snapshot_mode: %s): changes since the last captured event are missing; "
            "strandline snapshot start reads the collections",
            settings.snapshot_mode,
        )
    present, apart = oplog.present_time(), settings.starts
    return commit_gap(writer, last, "reset", to_token=token, present=present, snapshot_id=snapshot_id, apart=apart)


def commit_new_snapshot(writer: BronzeWriter, last: Committed) -> Committed:
    """Commit a batch that begins a snapshot (mode ``always``), unless a snapshot is under way."""
    if last.snapshot_id is not None or last.resume_token is None:
        return last
    return writer.commit(
        [],
        batch=last.batch + 1,
        resume_token=last.resume_token,
        snapshot_id=uuid.uuid4().hex,
        last_event=last.last_event,
    )


def present_token(oplog: Oplog) -> str:
    """Return the token just before the current operation time. A stream at that token has read all earlier events.

    The token of a new stream would not do: it lies a tick in the future, and an idle cluster reaches it only with its
    next no-op, ten seconds later. A sharded cluster has to wait for it: its shards may have events of the same cluster
    time, and a mongos may send one of them later than the others.
    """
    if oplog.is_of_several_shards:
        return oplog.present_token_data()
    return token_data(oplog.token_at(ResumePoint(cluster_time=oplog.present_time())))
