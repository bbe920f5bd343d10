"""The offset of a source: list, alter and reset it.

Bronze is the only offset store, so each change is a batch of bronze.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from strandline.bronze.envelope import Note
from strandline.bronze.gaps import commit_gap, commit_way_back, newest_position
from strandline.bronze.offsets import Committed, last_token
from strandline.bronze.writer import BronzeWriter
from strandline.control.sources import state_of
from strandline.errors import ConfigurationError, ResumePointLost
from strandline.jobs.lake_context import CaptureContext, LakeContext
from strandline.jobs.offset_target import offset_target
from strandline.jobs.offsets.life_cycle import required_offset
from strandline.jobs.selection import selection_of, stream_identity
from strandline.jobs.source_connection import capture_oplog, connection_options
from strandline.model.horizon import Horizon
from strandline.model.position import cluster_seconds, cluster_time_of
from strandline.model.query import Query
from strandline.model.resume_token import is_readable
from strandline.model.table_schemas import CHANGE_OPS, bronze_table
from strandline.model.timestamps import clock_us
from strandline.settings.capture import CaptureSettings
from strandline.source.client import AnyClient, open_client, token_data, token_json
from strandline.source.deployment import inspect_deployment
from strandline.source.oplog import Oplog
from strandline.source.resume import ResumePoint

_MAX_COUNT = 1_000_000
_TOKEN_FORMAT_AT = 35
"""Characters of a position before the format of its token (`ResumeToken.format`)."""


@dataclass(frozen=True)
class OffsetMove:
    """Result of a change of the offset, or of a dry run."""

    source: str
    action: Literal["alter", "reset"]
    direction: Literal["back", "forward", "none"]
    from_token: str | None
    """Token before the change. None: the source was reset before."""
    to_token: str
    """Token after the change. Empty: a reset."""
    events: int | None
    """Number of events that are captured again (back) or never captured (forward). None: unknown."""
    first_at: datetime | None = None
    """Cluster time of the first such event in bronze, UTC. None: bronze has none."""
    last_at: datetime | None = None
    """Cluster time of the last such event in bronze, UTC. None: bronze has none."""
    committed_batch: int | None = None
    """Number of the batch that holds the change. None: no batch was written (dry run, or no change)."""
    snapshot: Literal["all", "some", "none"] | None = None
    """Collections that the next capture reads again after a reset. None: no reset."""
    skipped: int | None = None
    """Number of changes after a reset's position until now, if not all collections are read again. None: unknown."""

    def summary(self) -> str:
        """Return one sentence for the command line."""
        batch_text = "" if self.committed_batch is None else f"; committed to bronze as batch {self.committed_batch}"
        if self.direction == "none":
            return f"{self.source} is at this position already; nothing to do"
        count = _counted(self.events)
        if self.action == "reset":
            rows_text = f"{count} captured events keep their rows{batch_text}"
            return (
                f"{self.source} restarts at the source's present, at the next capture: {self._consequence}; {rows_text}"
            )
        span = (
            f" ({self.first_at:%Y-%m-%d %H:%M:%S} to {self.last_at:%Y-%m-%d %H:%M:%S} UTC)"
            if self.first_at and self.last_at
            else ""
        )
        what = "are captured again" if self.direction == "back" else "are skipped, and a gap is recorded"
        return f"{self.source} moves {self.direction}: {count} events{span} {what}{batch_text}"

    @property
    def _consequence(self) -> str:
        """Effect of a reset on the changes between the old position and the next capture."""
        if self.snapshot == "all":
            return "a snapshot reads every collection again"
        which = "no collection is" if self.snapshot == "none" else "some collections are not"
        return (
            f"{which} read again (capture.snapshot_mode, capture.snapshot_include_collection_list, "
            "capture.snapshot_collection_filter_overrides, capture.starts), "
            f"so {_counted(self.skipped)} changes until now, and all until that capture, are skipped; "
            "status shows the gap until strandline snapshot start has read them"
        )


def _counted(number: int | None) -> str:
    if number is None:
        return "an unknown number of"
    return f"{'at least ' if number >= _MAX_COUNT else ''}{number:,}"


def alter_offset(ctx: LakeContext, to: str, *, by: str, why: str | None, dry_run: bool = False) -> OffsetMove:
    """Move the offset of a stopped source back or forward.

    The next capture continues from the new offset. After a reset the move is relative to the last streamed event.

    I/O: reads the source; appends one batch to bronze, which fences a running capture. Idempotent.

    Args:
        to: Resume token (Extended JSON, or its ``_data``), time (ISO 8601), version of the bronze table, ``now`` or
            ``oldest``.
        by: Name of the user, stored with the change.
        why: Reason, stored with the change. None: no reason.
        dry_run: Write nothing.

    Raises:
        ConfigurationError: The source is not stopped, has no offset, or does not accept the target. No batch was
            written.
        FencedError: Another process changed the offset at the same time.
    """
    ctx = ctx.for_capture()
    with _stopped_source(ctx) as (client, writer, last):
        capture = ctx.settings.capture
        oplog = capture_oplog(client, selection_of(capture), capture, inspect_deployment(client))
        target = offset_target(ctx, to, oplog)
        token = _usable_token(oplog, target, to)
        _check_horizon(ctx, oplog, token, to)
        move = _plan_move(ctx, oplog, last, token)
        if dry_run or move.direction == "none":
            return move
        if move.direction == "forward":
            commit = commit_gap(
                writer,
                replace(last, resume_token=move.from_token),
                "altered",
                to_token=move.to_token,
                present=oplog.present_time(),
                snapshot_id=last.snapshot_id,
                apart=capture.starts,
                by=by,
                why=why,
            )
        else:
            commit_way_back(writer, target.cluster_time, to_token=move.to_token, batch=last.batch + 1)
            note = Note("offset", "alter", _details(move, by, why))
            commit = writer.commit_note(
                note, batch=last.batch + 1, resume_token=move.to_token, snapshot_id=last.snapshot_id
            )
        return replace(move, committed_batch=commit.batch)


def _usable_token(oplog: Oplog, target: ResumePoint, to: str) -> str:
    """Return the token of *target*. Raise ConfigurationError if capture could not resume there. I/O: opens streams."""
    if not oplog.can_start_at(target):
        raise ConfigurationError(
            f"the source cannot resume at {to!r}: its oplog does not hold it",
            next_step="strandline offsets history, or --to oldest",
        )
    token = target.token or oplog.token_at(target)
    if oplog.is_fragment(token):
        raise ConfigurationError(
            f"{to!r} is the token of a fragment of a large event: another capture.mode or "
            "capture.cursor_oversize_handling_mode could not resume there",
            next_step="strandline offsets alter --to with a time, or with another token",
        )
    if oplog.is_of_the_future(token):
        raise ConfigurationError(f"{to!r} lies in the source's future", next_step="strandline offsets alter --to now")
    return token


def _check_horizon(ctx: LakeContext, oplog: Oplog, token: str, to: str) -> None:
    """Raise ConfigurationError if bronze was compacted beyond *token*. I/O: reads bronze's properties, opens a stream.

    Silver may have forgotten deletions of that time, and histories lack what bronze no longer has.
    """
    horizon = Horizon.of(ctx.tables.properties(bronze_table(ctx.settings.source.name)))
    if horizon is None:
        return
    begin = ResumePoint(cluster_time=cluster_time_of(horizon.position))
    if token_data(token) < token_data(oplog.token_at(begin)):
        raise ConfigurationError(
            f"{to!r} is before {horizon.time:%Y-%m-%d %H:%M:%S} UTC, up to which bronze was compacted "
            "(maintenance.bronze_retention_days): its events would come again without those after them",
            next_step=f"strandline offsets alter --to {horizon.time:%Y-%m-%dT%H:%M:%SZ}, or later; "
            "to read documents again: strandline start, strandline snapshot start",
        )


def reset_offset(ctx: LakeContext, *, by: str, why: str | None, dry_run: bool = False) -> OffsetMove:
    """Remove the offset of a stopped source. Captured rows stay.

    The next capture starts at the present, with a snapshot if the snapshot mode takes one at the first start.

    I/O: appends one batch to bronze that opens a new epoch. Idempotent.

    Args:
        by: Name of the user, stored with the change.
        why: Reason, stored with the change. None: no reason.
        dry_run: Write nothing.

    Raises:
        ConfigurationError: The source is not stopped, or has no offset. No batch was written.
    """
    ctx = ctx.for_capture()
    with _stopped_source(ctx, any_stream=True) as (client, writer, last):
        changes = Query(writer.table).where(("batch", "is not null", None), ("op", "in", CHANGE_OPS))
        captured = ctx.tables.query(changes.aggregate(events=("count", "op")))[0]["events"]
        direction: Literal["back", "none"] = "none" if last.resume_token is None else "back"
        move = OffsetMove(ctx.settings.source.name, "reset", direction, last.resume_token, "", captured)
        move = replace(move, snapshot=_read_again(ctx.settings.capture))
        if move.snapshot != "all" and last.resume_token is not None:
            move = replace(move, skipped=_events_until_now(ctx.settings.capture, client, last.resume_token))
        if dry_run:
            return move
        if direction != "none":
            note = Note("offset", "reset", _details(move, by, why))
            commit = writer.open_epoch(note, batch=last.batch + 1, resume_token=None, snapshot_id=None)
            move = replace(move, committed_batch=commit.batch)
        writer.change_stream_to(
            stream_identity(ctx.settings.capture)
        )  # last, so that a crash before it repeats the reset
        return move


def _read_again(capture: CaptureSettings) -> Literal["all", "some", "none"]:
    """Return the collections that the first capture after a reset reads."""
    if not capture.snapshot_policy.first:
        return "none"
    limits = (capture.snapshot_include_collection_list, capture.snapshot_collection_filter_overrides, capture.starts)
    return "some" if any(limits) else "all"


def _events_until_now(capture: CaptureSettings, client: AnyClient, token: str) -> int | None:
    """Return the number of captured events after *token*. None: the source does not tell. I/O: reads the events."""
    oplog = capture_oplog(client, selection_of(capture), capture, inspect_deployment(client))
    try:
        return None if oplog.is_of_the_future(token) else oplog.count(token, oplog.present_token_data(), _MAX_COUNT)
    except ResumePointLost:  # the token cannot be read
        return None


@contextmanager
def _stopped_source(
    ctx: CaptureContext, *, any_stream: bool = False
) -> Iterator[tuple[AnyClient, BronzeWriter, Committed]]:
    """Open a stopped source: a client, a writer of its bronze table, and its last committed offset.

    I/O: reads the source and bronze.

    Args:
        any_stream: Accept an offset of another change stream.

    Raises:
        ConfigurationError: The source is not stopped, or has no offset.
    """
    source = ctx.settings.source.name
    required_offset(ctx)
    state = state_of(ctx.tables, source)
    if state.state != "stopped":
        raise ConfigurationError(
            f"source {source} is {state.state}; its offset can be altered only while it is stopped",
            next_step="strandline stop",
        )
    options = connection_options(ctx.settings)
    client = open_client(options, raw=True)
    try:
        writer = BronzeWriter(ctx.tables, source, uuid.uuid4().hex, clock_us, open_engine=ctx.open_engine)
        last = writer.open(
            inspect_deployment(client, options.uri).identity,
            None if any_stream else stream_identity(ctx.settings.capture),
        )
        assert last is not None  # `required_offset` has checked it
        yield client, writer, last
        writer.close()
    finally:
        client.close()


def _plan_move(ctx: LakeContext, oplog: Oplog, last: Committed, to_token: str) -> OffsetMove:
    """Return the direction of a move to *to_token*, and the number of events on the way.

    I/O: reads the source and bronze.
    """
    bronze, target = bronze_table(ctx.settings.source.name), token_data(to_token)
    current = last.resume_token or last_token(ctx.tables, bronze)
    is_lost = current is not None and (not is_readable(current) or oplog.is_of_the_future(current))
    start = _last_streamed(ctx) if is_lost else current
    move = OffsetMove(ctx.settings.source.name, "alter", "none", current, to_token, 0)
    if last.resume_token is not None and not is_lost and token_data(last.resume_token) == target:
        return move
    if start is not None and token_data(start) < target:
        return replace(move, direction="forward", events=oplog.count(start, target, _MAX_COUNT))
    if is_lost and start is None:  # the number of events in between is unknown: record a gap
        return replace(move, direction="forward", events=None)
    after = Query(bronze).where(("batch", "is not null", None), ("position", "token >", target))
    _check_format(ctx, after, oplog.token_format())
    (counts,) = ctx.tables.query(
        after.aggregate(
            events=("count_distinct", "position"), first=("min", "cluster_time"), last=("max", "cluster_time")
        )
    )
    return replace(move, direction="back", events=counts["events"], first_at=counts["first"], last_at=counts["last"])


def _check_format(ctx: LakeContext, after: Query, token_format: str) -> None:
    """Check that the events of *after* would come again with the same positions. I/O: reads bronze.

    Raises:
        ConfigurationError: An event has a token of another format. Bronze and histories would have it twice.
    """
    of_another = after.where(("position", "not like", "_" * _TOKEN_FORMAT_AT + token_format + "%"))
    (row,) = ctx.tables.query(of_another.aggregate(events=("count_distinct", "position"), last=("max", "position")))
    if not row["events"]:
        return
    since = datetime.fromtimestamp(cluster_seconds(row["last"]) + 1, UTC)
    raise ConfigurationError(
        f"{row['events']:,} events after that position have tokens of another format than the source gives now "
        "(MongoDB was upgraded, or cursor_oversize_handling_mode changed): they would be in bronze and histories twice",
        next_step=f"strandline offsets alter --to {since:%Y-%m-%dT%H:%M:%SZ}, or later; to read documents again: "
        "strandline start, strandline snapshot start",
    )


def _last_streamed(ctx: LakeContext) -> str | None:
    """Return the token of the newest event in bronze, as a substitute for a lost offset. None: bronze has no event."""
    position = newest_position(ctx.tables, bronze_table(ctx.settings.source.name))
    return token_json({"_data": position.rpartition(":")[2]}) if position else None


def _details(move: OffsetMove, by: str, why: str | None) -> str:
    return json.dumps({"by": by, "why": why, "from": move.from_token, "to": move.to_token or None})
