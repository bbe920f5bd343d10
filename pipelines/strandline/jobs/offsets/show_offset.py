"""Committed position of a source: read from bronze, and compared with the source if one is configured."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from strandline.bronze.bronze_properties import forgets_transactions
from strandline.bronze.capture_process import CaptureProcess, newest_writer
from strandline.bronze.gaps import standing_gaps
from strandline.bronze.offsets import Committed, CommittedBatch, history, newest_times
from strandline.control.sources import State, state_of
from strandline.errors import ResumePointLost, one_line
from strandline.io.tables.table_store import TableStore
from strandline.jobs.lake_context import LakeContext
from strandline.jobs.offsets.life_cycle import opened_oplog, required_offset
from strandline.jobs.selection import left_out_warning, selection_of
from strandline.model.gap import Gap
from strandline.model.resume_token import RESET_OR_HEAL, ResumeToken
from strandline.model.source_clock import clock_jump
from strandline.model.table_schemas import bronze_table
from strandline.model.tables import TableName
from strandline.silver.progress_index import ProgressIndex
from strandline.source.listing import list_source
from strandline.source.oplog import OplogWindow
from strandline.source.replies import optional_answer

_MAX_GAPS: Final = 5


@dataclass(frozen=True)
class Offset:
    """Committed position of a source. Values from the source are None if it does not answer; *warning* says why."""

    source: str
    state: State
    """State that an operator wants. *process* says whether a process runs."""
    batch: int
    epoch: int
    resume_token: str | None
    """None after a reset."""
    snapshot_id: str | None
    """Id of the running snapshot; None: no snapshot is running."""
    last_event_at: datetime | None
    """Cluster time of the newest event in bronze, UTC."""
    captured_at: datetime | None
    """Commit time of the newest batch, UTC."""
    table_version: int
    """Version of the bronze table."""
    position_at: datetime | None = None
    """Cluster time of the resume token, UTC."""
    age_seconds: int | None = None
    """Current time of the source minus *position_at*."""
    headroom_seconds: int | None = None
    """Time until the oplog drops the position, at the current write rate. None: it has never rolled over."""
    warning: str | None = None
    gap: str | None = None
    """Changes that bronze lacks and that no snapshot in silver has made up for. None: there are none."""
    left_out: str | None = None
    """Views and time-series collections that are selected, and why they are not captured. None: there are none."""
    process: CaptureProcess | None = None
    """Process that captured last. None: lately only commands that move the offset have committed."""


def show_offset(ctx: LakeContext) -> Offset:
    """Return the committed position of the source.

    I/O: reads bronze; asks the source, if one is configured, how long its oplog will hold the position.

    Raises:
        ConfigurationError: Nothing has been captured from this source.
    """
    last, bronze = required_offset(ctx), bronze_table(ctx.settings.source.name)
    event_at, captured_at = newest_times(ctx.tables, bronze, last)
    offset = Offset(
        source=bronze.name,
        state=state_of(ctx.tables, bronze.name).state,
        batch=last.batch,
        epoch=last.epoch,
        resume_token=last.resume_token,
        snapshot_id=last.snapshot_id,
        last_event_at=event_at,
        captured_at=captured_at,
        table_version=ctx.tables.version(bronze),
        process=process_of(ctx, last),
        gap=_gap_of_reset(event_at) if last.resume_token is None else _open_gaps(ctx.tables, bronze),
    )
    if ctx.settings.source.is_configured:
        offset = _compare_with_source(ctx, offset, last)
    else:
        offset = replace(offset, warning=_token_error(last))
    warnings = (offset.warning, _jump(event_at), _forgets(ctx, bronze))
    return replace(offset, warning="; ".join(filter(None, warnings)) or None)


def process_of(ctx: LakeContext, last: Committed, now: datetime | None = None) -> CaptureProcess | None:
    """Return the process that captured last. None: lately only commands that move the offset have committed.

    I/O: reads the newest batches of bronze; asks this machine for the process.

    Args:
        now: UTC. None: read the clock.
    """
    bronze = bronze_table(ctx.settings.source.name)
    newest = optional_answer(lambda: newest_writer(ctx.tables, bronze, last.batch), "the process that captures")
    if newest is None:
        return None
    return CaptureProcess.at(now or datetime.now(UTC), *newest, ctx.settings.capture.silence_seconds)


def _forgets(ctx: LakeContext, bronze: TableName) -> str | None:
    """Return the warning for a property that ends the fence of an idle writer. None: the table lacks it."""
    problem = forgets_transactions(bronze, ctx.tables.properties(bronze))
    return None if problem is None else f"{problem} → remove the property"


def _jump(event_at: datetime | None) -> str | None:
    """Return the warning for a newest event that is dated after this machine's time. None: it is not."""
    jump = None if event_at is None else clock_jump(int(event_at.timestamp()), time.time())
    return None if jump is None else f"{jump}: lags and ages are too small → synchronize the clocks of its members"


def _gap_of_reset(event_at: datetime | None) -> str:
    begin = "the beginning" if event_at is None else event_at.isoformat()
    return f"after a reset: changes from {begin} to the start of the next capture will be missing"


def unhealed_gaps(tables: TableStore, bronze: TableName) -> list[Gap]:
    """Return the gaps that no snapshot has healed, newest first.

    I/O: reads properties of bronze and of ``control.cuts``; reads rows of bronze for gaps of a rewind only.
    """
    gaps = standing_gaps(tables, bronze)
    unhealed = ProgressIndex.read(tables, bronze).unhealed(gaps) if gaps else []
    return sorted(unhealed, key=lambda gap: gap.before, reverse=True)


def _open_gaps(tables: TableStore, bronze: TableName) -> str | None:
    summaries = list(dict.fromkeys(gap.summary() for gap in unhealed_gaps(tables, bronze)))
    more = [f"{len(summaries) - _MAX_GAPS} more"] if len(summaries) > _MAX_GAPS else []
    return "; ".join([*summaries[:_MAX_GAPS], *more]) or None


def _token_error(last: Committed) -> str | None:
    try:
        _ = None if last.resume_token is None else ResumeToken.parse(last.resume_token)
    except ResumePointLost as lost:
        return str(lost)
    return None


def _compare_with_source(ctx: LakeContext, offset: Offset, last: Committed) -> Offset:
    try:
        offset, reach = _asked(ctx, offset, last)
    except Exception as error:  # noqa: BLE001  # why: bronze tells the offset, whatever the source answers
        return replace(offset, warning=one_line(error))
    if reach is None:
        return offset
    warning = None
    if reach.why_lost is not None:
        warning = f"{reach.why_lost} → {RESET_OR_HEAL}"
    elif (
        reach.headroom_seconds is not None
        and reach.headroom_seconds < ctx.settings.capture.headroom_warning_minutes * 60
    ):
        minutes = reach.headroom_seconds // 60
        warning = (
            f"the source forgets this position in about {minutes} minutes → "
            "enlarge the oplog, or let the capture catch up"
        )
    position_at = None if reach.position is None else datetime.fromtimestamp(reach.position, UTC)
    return replace(
        offset,
        position_at=position_at,
        age_seconds=reach.age_seconds,
        headroom_seconds=reach.headroom_seconds,
        warning=warning,
    )


def _asked(ctx: LakeContext, offset: Offset, last: Committed) -> tuple[Offset, OplogWindow | None]:
    """Return *offset* with what is left out, and the oplog's window. None: there is no offset to look for."""
    with opened_oplog(ctx) as (client, oplog):
        selection = selection_of(ctx.settings.capture)
        listing = optional_answer(lambda: list_source(client, selection), "the collections")
        offset = replace(offset, left_out=None if listing is None else left_out_warning(selection, listing))
        return offset, None if last.resume_token is None else oplog.window(last.resume_token)


def offset_history(ctx: LakeContext, limit: int) -> list[CommittedBatch]:
    """Return the newest *limit* committed offsets, newest first.

    I/O: reads bronze.

    Raises:
        ConfigurationError: No batch of this source was ever committed.
    """
    required_offset(ctx)
    return history(ctx.tables, bronze_table(ctx.settings.source.name), limit)
