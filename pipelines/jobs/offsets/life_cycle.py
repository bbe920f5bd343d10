"""Stop, start, pause and resume a source: a row that whatever captures it reads, now and after every restart."""

from __future__ import annotations

import logging
from contextlib import closing

from pipelines.bronze.offsets import Committed, committed
from pipelines.control.sources import SourceState, State, set_state
from pipelines.errors import ConfigurationError, StrandlineError
from pipelines.jobs.context import JobContext
from pipelines.jobs.selection import selection_of
from pipelines.jobs.source_connection import connection_options
from pipelines.model.table_schemas import bronze_table
from pipelines.source.client import open_client
from pipelines.source.deployment import inspect_deployment
from pipelines.source.oplog import Oplog, OplogWindow

_log = logging.getLogger("strandline.sources")


def set_desired_state(ctx: JobContext, state: State, *, by: str, why: str | None, force: bool = False) -> SourceState:
    """I/O: one row in ``control.sources``, none where the source is in that state already. One that does not answer can be stopped.

    Args:
        force: Stop or pause although the source will soon forget the position.

    Raises:
        ConfigurationError: The source will forget the position within ``capture.headroom_warning_minutes``, and *force* is not set.
    """
    name = ctx.settings.source.name
    if state != "running" and not force and ctx.settings.source.uri is not None:
        _refuse_where_soon_forgotten(ctx)
    return set_state(ctx.tables, name, state, by=by, why=why)


def _refuse_where_soon_forgotten(ctx: JobContext) -> None:
    try:
        reach = reach_of(ctx, last_offset(ctx))
    except StrandlineError as error:
        _log.warning("how long the source will remember its position cannot be told: %s", error)
        return
    if (
        reach is not None and reach.why_lost is not None
    ):  # a stop loses nothing more, and is the first step of the remedy
        _log.warning("the position of %s is lost: %s", ctx.settings.source.name, reach.why_lost)
        return
    if reach is None or reach.headroom_seconds is None:
        return
    if reach.headroom_seconds < ctx.settings.capture.headroom_warning_minutes * 60:
        minutes = reach.headroom_seconds // 60
        raise ConfigurationError(
            f"the source forgets the position of {ctx.settings.source.name} in about {minutes} minutes; a stop would lose events",
            next_step="enlarge the oplog, let the capture catch up, or add --force",
        )


def last_offset(ctx: JobContext) -> Committed | None:
    """I/O: reads bronze; None where nothing has been captured from the source."""
    bronze = bronze_table(ctx.settings.source.name)
    return committed(ctx.tables, bronze) if ctx.tables.exists(bronze) else None


def required_offset(ctx: JobContext) -> Committed:
    """The same; raises ConfigurationError where there is none."""
    last = last_offset(ctx)
    if last is None:
        raise ConfigurationError(
            f"source {ctx.settings.source.name} has no offset yet", next_step="strandline capture --once"
        )
    return last


def reach_of(ctx: JobContext, last: Committed | None) -> OplogWindow | None:
    """I/O: how far back the source remembers, held against the committed position. None where there is none.

    Raises:
        RetriableError: The source does not answer.
    """
    if last is None or last.resume_token is None:
        return None
    with closing(open_client(connection_options(ctx.settings), raw=True)) as client:
        expanded = inspect_deployment(client).shows_expanded_events
        return Oplog(client, selection_of(ctx.settings.capture), expanded_events=expanded).window(last.resume_token)
