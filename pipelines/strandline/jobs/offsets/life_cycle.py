"""Stop, start, pause and resume a source. Every capture of the source reads the desired state."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager

from strandline.bronze.offsets import Committed, committed
from strandline.control.sources import SourceState, State, set_state, state_of
from strandline.errors import ConfigurationError, one_line
from strandline.jobs.lake_context import LakeContext, PipelineContext
from strandline.jobs.selection import selection_of
from strandline.jobs.source_connection import capture_oplog, connection_options
from strandline.model.table_schemas import bronze_table
from strandline.source.client import AnyClient, open_client
from strandline.source.deployment import inspect_deployment
from strandline.source.oplog import Oplog, OplogWindow

_log = logging.getLogger("strandline.sources")


def set_desired_state(ctx: LakeContext, state: State, *, by: str, why: str | None, force: bool = False) -> SourceState:
    """Store the desired state of a source.

    I/O: reads the source and bronze; inserts one row into ``control.sources``, or none if the state is the same. A
    source that does not answer can be stopped, too.

    Args:
        by: Name of the user, stored with the state.
        why: Reason, stored with the state. None: no reason.
        force: Stop or pause even if the history after the committed offset expires soon.

    Raises:
        ConfigurationError: That history expires within ``capture.headroom_warning_minutes``, and *force* is not set.
    """
    name = ctx.settings.source.name
    if state != "running" and not force and ctx.settings.source.is_configured:
        _refuse_if_history_expires_soon(ctx)
    return set_state(ctx.tables, name, state, by=by, why=why)


def request_restart(ctx: LakeContext, *, by: str, why: str | None) -> SourceState:
    """Have a running capture begin again with new connections, from its committed position.

    I/O: inserts one row into ``control.sources``. It starts no process.

    Raises:
        ConfigurationError: The source is paused or stopped.
    """
    name = ctx.settings.source.name
    if (state := state_of(ctx.tables, name).state) != "running":
        raise ConfigurationError(f"source {name} is {state}", next_step="resume it")
    return set_state(ctx.tables, name, "running", by=by, why=why, restart=True)


def _refuse_if_history_expires_soon(ctx: LakeContext) -> None:
    try:
        reach = oplog_reach(ctx, last_offset(ctx))
    except Exception as error:  # noqa: BLE001  # why: a source can be stopped, whatever it answers
        _log.warning(
            "cannot tell how long the source keeps the history after the committed offset: %s", one_line(error)
        )
        return
    if reach is not None and reach.why_lost is not None:
        # a stop loses no more events, and it is the first step of the recovery
        _log.warning("the position of %s is lost: %s", ctx.settings.source.name, reach.why_lost)
        return
    if reach is None or reach.headroom_seconds is None:
        return
    if reach.headroom_seconds < ctx.settings.capture.headroom_warning_minutes * 60:
        minutes = reach.headroom_seconds // 60
        raise ConfigurationError(
            f"the history after the offset of {ctx.settings.source.name} expires in about {minutes} minutes; "
            "a stop would lose events",
            next_step="enlarge the oplog, let the capture catch up, or add --force",
        )


def last_offset(ctx: LakeContext | PipelineContext) -> Committed | None:
    """Return the last committed offset of the source. None: no batch was ever committed.

    I/O: reads bronze.
    """
    bronze = bronze_table(ctx.settings.source.name)
    return committed(ctx.tables, bronze) if ctx.tables.exists(bronze) else None


def required_offset(ctx: LakeContext | PipelineContext) -> Committed:
    """Return the last committed offset of the source.

    I/O: reads bronze.

    Raises:
        ConfigurationError: No batch of this source was ever committed.
    """
    last = last_offset(ctx)
    if last is None:
        raise ConfigurationError(
            f"source {ctx.settings.source.name} has no offset yet", next_step="strandline capture --once"
        )
    return last


def oplog_reach(ctx: LakeContext, last: Committed | None) -> OplogWindow | None:
    """Compare the source's history with the committed offset. None: no offset is committed.

    I/O: reads the source.

    Raises:
        RetriableError: The source does not answer.
    """
    if last is None or last.resume_token is None:
        return None
    with opened_oplog(ctx) as (_, oplog):
        return oplog.window(last.resume_token)


@contextmanager
def opened_oplog(ctx: LakeContext) -> Iterator[tuple[AnyClient, Oplog]]:
    """Open a client of the source, and the oplog of the selection. I/O: reads the source.

    Raises:
        RetriableError: The source does not answer.
    """
    options, capture = connection_options(ctx.settings), ctx.settings.capture
    with closing(open_client(options, raw=True)) as client:
        deployment = inspect_deployment(client, options.uri)
        yield client, capture_oplog(client, selection_of(capture), capture, deployment)
