"""Stop, start, pause and resume a source: a row that whatever captures it reads, now and after every restart."""

from __future__ import annotations

from contextlib import closing

from pipelines.bronze.offsets import committed
from pipelines.control.sources import SourceState, State, set_state
from pipelines.errors import ConfigurationError
from pipelines.jobs.capture import connection_options
from pipelines.jobs.context import JobContext
from pipelines.jobs.selection import selection_of
from pipelines.model.columns import bronze_table
from pipelines.source.client import inspect, open_client
from pipelines.source.oplog import Oplog, OplogReach


def order(ctx: JobContext, state: State, *, by: str, why: str | None, force: bool = False) -> SourceState:
    """I/O: one row in ``control.sources``, none where the source is in that state already.

    Args:
        force: Stop or pause although the source will soon forget the position.

    Raises:
        ConfigurationError: The source will forget the position within ``capture.headroom_warning_minutes``, and *force* is not set.
    """
    name = ctx.settings.source.name
    if state != "running" and not force and ctx.settings.source.uri is not None:
        reach = reach_of(ctx)
        least = ctx.settings.capture.headroom_warning_minutes
        if reach is not None and reach.headroom_seconds is not None and reach.headroom_seconds < least * 60:
            raise ConfigurationError(
                f"the source forgets the position of {name} in about {reach.headroom_seconds // 60} minutes; a stop would lose events",
                next_step="enlarge the oplog, let the capture catch up, or add --force",
            )
    return set_state(ctx.tables, name, state, by=by, why=why)


def reach_of(ctx: JobContext) -> OplogReach | None:
    """I/O: how far back the source remembers, held against the committed position. None where nothing is committed.

    Raises:
        RetriableError: The source does not answer.
    """
    bronze = bronze_table(ctx.settings.source.name)
    last = committed(ctx.tables, bronze) if ctx.tables.exists(bronze) else None
    if last is None or last.resume_token is None:
        return None
    with closing(open_client(connection_options(ctx.settings), raw=True)) as client:
        expanded = inspect(client).shows_expanded_events
        return Oplog(client, selection_of(ctx.settings.capture), expanded_events=expanded).reach(last.resume_token)
