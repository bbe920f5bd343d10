"""The position of a source: seen, altered and reset. It stands in bronze and nowhere else, so an alteration is a batch of bronze."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from pyspark.sql import functions as F

from pipelines.bronze.envelope import Note
from pipelines.bronze.gaps import commit_gap, commit_way_back, newest_position
from pipelines.bronze.offsets import Committed, Ended, history, last_token
from pipelines.bronze.writer import BronzeWriter
from pipelines.control.sources import state_of
from pipelines.errors import ConfigurationError
from pipelines.jobs.context import JobContext
from pipelines.jobs.migration import migrate
from pipelines.jobs.offset_target import offset_target
from pipelines.jobs.offsets.life_cycle import required_offset
from pipelines.jobs.selection import selection_of, stream_of
from pipelines.jobs.source_connection import connection_options
from pipelines.model.resume_token import is_readable
from pipelines.model.table_schemas import CHANGE_OPS, bronze_table
from pipelines.model.timestamps import clock_us, utc
from pipelines.source.client import AnyClient, open_client, token_data, token_json
from pipelines.source.deployment import inspect_deployment
from pipelines.source.oplog import Oplog

_COUNTED_AT_MOST = 1_000_000


@dataclass(frozen=True)
class Move:
    """What an alteration of the offset does, or would do."""

    source: str
    action: Literal["alter", "reset"]
    direction: Literal["back", "forward", "none"]
    from_token: str | None
    to_token: str
    """Empty for a reset."""
    events: int | None
    """How many events are captured again (back) or never captured (forward). None: the source cannot tell."""
    first_at: datetime | None = None
    last_at: datetime | None = None
    """Their cluster times as far as bronze knows them, UTC."""
    committed_batch: int | None = None
    """None: nothing was written (a dry run, or there was nothing to do)."""

    def summary(self) -> str:
        done = "" if self.committed_batch is None else f"; it stands in bronze as batch {self.committed_batch}"
        if self.direction == "none":
            return f"{self.source} is there already; nothing to do"
        count = "an unknown number of" if self.events is None else f"{self.events:,}"
        if self.action == "reset":
            return f"{self.source} starts anew: {count} captured events keep their rows{done}"
        span = (
            f" ({self.first_at:%Y-%m-%d %H:%M:%S} to {self.last_at:%Y-%m-%d %H:%M:%S} UTC)"
            if self.first_at and self.last_at
            else ""
        )
        what = "are captured again" if self.direction == "back" else "are skipped, and a gap is recorded"
        least = "at least " if self.events is not None and self.events >= _COUNTED_AT_MOST else ""
        return f"{self.source} moves {self.direction}: {least}{count} events{span} {what}{done}"


def offset_history(ctx: JobContext, limit: int) -> list[Ended]:
    """I/O: the newest *limit* positions that were ever committed, newest first.

    Raises:
        ConfigurationError: Nothing has been captured from this source.
    """
    required_offset(ctx)
    return history(ctx.tables, bronze_table(ctx.settings.source.name), limit)


def alter_offset(ctx: JobContext, to: str, *, by: str, why: str | None, dry_run: bool = False) -> Move:
    """I/O: one commit to bronze: the next capture goes on from there, and whoever captures now is fenced. Idempotent.

    After a reset it is forward or back from where bronze was streamed last.

    Args:
        to: A token (Extended JSON, or its ``_data``), a time (ISO 8601), a version of the bronze table, ``now`` or ``oldest``.

    Raises:
        ConfigurationError: The source is not stopped, has no offset, or does not accept the target; nothing was written.
        FencedError: Somebody else altered it at the same moment.
    """
    with _stopped_source(ctx) as (client, writer, last):
        expanded = inspect_deployment(client).shows_expanded_events
        oplog = Oplog(client, selection_of(ctx.settings.capture), expanded_events=expanded)
        start = offset_target(ctx, to, oplog)
        if not oplog.can_start_at(start):
            raise ConfigurationError(
                f"the source cannot go on from {to!r}: its oplog does not hold it",
                next_step="strandline offsets history, or --to oldest",
            )
        token = start.token or oplog.token_at(start)
        if token_data(token) > oplog.present_token_data():
            raise ConfigurationError(
                f"{to!r} lies in the source's future", next_step="strandline offsets alter --to now"
            )
        move = _move(ctx, oplog, last, token)
        if dry_run or move.direction == "none":
            return move
        if move.direction == "forward":
            present = oplog.present_time()
            here = replace(last, resume_token=move.from_token)
            done = commit_gap(
                writer,
                here,
                "altered",
                to_token=move.to_token,
                present=present,
                snapshot_id=last.snapshot_id,
                by=by,
                why=why,
            )
        else:
            commit_way_back(writer, start.cluster_time, to_token=move.to_token, batch=last.batch + 1)
            note = Note("offset", "alter", _said(move, by, why))
            done = writer.commit_note(
                note, batch=last.batch + 1, resume_token=move.to_token, snapshot_id=last.snapshot_id
            )
        return replace(move, committed_batch=done.batch)


def reset_offset(ctx: JobContext, *, by: str, why: str | None, dry_run: bool = False) -> Move:
    """I/O: one commit to bronze that opens a new lineage: the next capture starts at the present, with a snapshot if the configuration
    asks for one at the first start. What was captured stays. Idempotent.

    Raises:
        ConfigurationError: The source is not stopped, or has no offset; nothing was written.
    """
    with _stopped_source(ctx, any_stream=True) as (_, writer, last):
        captured = (
            ctx.tables.read(writer.table).where(F.col("batch").isNotNull() & F.col("op").isin(*CHANGE_OPS)).count()
        )
        direction: Literal["back", "none"] = "none" if last.resume_token is None else "back"
        move = Move(ctx.settings.source.name, "reset", direction, last.resume_token, "", captured)
        if dry_run:
            return move
        if direction != "none":
            note = Note("offset", "reset", _said(move, by, why))
            done = writer.open_lineage(note, batch=last.batch + 1, resume_token=None, snapshot_id=None)
            move = replace(move, committed_batch=done.batch)
        writer.change_stream_to(stream_of(ctx.settings.capture))  # last: a reset that ended before it is called again
        return move


@contextmanager
def _stopped_source(
    ctx: JobContext, *, any_stream: bool = False
) -> Iterator[tuple[AnyClient, BronzeWriter, Committed]]:
    """A client, a writer and the committed end of a source that nobody is to capture now."""
    source = ctx.settings.source.name
    required_offset(ctx)
    state = state_of(ctx.tables, source)
    if state.state != "stopped":
        raise ConfigurationError(
            f"source {source} is {state.state}; its offset can be altered only while it is stopped",
            next_step="strandline stop",
        )
    migrate(ctx)
    client = open_client(connection_options(ctx.settings), raw=True)
    try:
        writer = BronzeWriter(ctx.tables, source, uuid.uuid4().hex, clock_us)
        last = writer.open(inspect_deployment(client).identity, None if any_stream else stream_of(ctx.settings.capture))
        assert last is not None  # looked at above
        yield client, writer, last
    finally:
        client.close()


def _move(ctx: JobContext, oplog: Oplog, last: Committed, to_token: str) -> Move:
    bronze, there = bronze_table(ctx.settings.source.name), token_data(to_token)
    here = last.resume_token or last_token(ctx.tables, bronze)
    is_lost = here is not None and not (is_readable(here) and token_data(here) <= oplog.present_token_data())
    start = _last_streamed(ctx) if is_lost else here
    move = Move(ctx.settings.source.name, "alter", "none", here, to_token, 0)
    if last.resume_token is not None and not is_lost and token_data(last.resume_token) == there:
        return move
    if start is not None and token_data(start) < there:
        return replace(move, direction="forward", events=oplog.count(start, there, _COUNTED_AT_MOST))
    if is_lost and start is None:  # nobody knows which events lie between: a gap says so
        return replace(move, direction="forward", events=None)
    token_of_row = F.substring_index("position", ":", -1)
    rows = ctx.tables.read(bronze).where(F.col("batch").isNotNull() & (token_of_row > there))
    found = rows.agg(F.countDistinct("position"), F.min("cluster_time"), F.max("cluster_time")).first()
    assert found is not None  # an aggregate has one row
    return replace(move, direction="back", events=found[0], first_at=utc(found[1]), last_at=utc(found[2]))


def _last_streamed(ctx: JobContext) -> str | None:
    """The token of the newest streamed event, in place of a committed one that is lost. None: no event was streamed."""
    position = newest_position(ctx.tables, bronze_table(ctx.settings.source.name))
    return token_json({"_data": position.rpartition(":")[2]}) if position else None


def _said(move: Move, by: str, why: str | None) -> str:
    return json.dumps({"by": by, "why": why, "from": move.from_token, "to": move.to_token or None})
