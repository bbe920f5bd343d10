"""Wait until a layer holds what the source had done up to a moment: an application reads there what it wrote."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from strandline.errors import ConfigurationError
from strandline.jobs.catch_up import CatchUp
from strandline.jobs.gold.planned import graph_of
from strandline.jobs.lake_context import LakeContext
from strandline.jobs.offset_target import operation_time_in
from strandline.jobs.offsets.life_cycle import opened_oplog
from strandline.model.table_schemas import bronze_table
from strandline.model.tables import TableName
from strandline.model.timestamps import TIME_EXAMPLE, seconds_of
from strandline.silver.progress_index import ProgressIndex
from strandline.source.oplog import Oplog

WaitLayer = Literal["bronze", "silver", "gold"]


@dataclass(frozen=True)
class Arrival:
    """A layer that holds every change up to a moment of the source."""

    layer: WaitLayer
    until: tuple[int, int]
    """Cluster time of that moment: seconds since the epoch, and increment."""
    versions: Mapping[str, int]
    """Versions of the layer's tables that hold the changes, by table name. Views of gold have none."""
    cut: int | None
    """Number of the cut of silver. None: *layer* is bronze, or the newest cut names older versions."""
    seconds: float
    """Time for which the call waited."""


def wait_for(
    ctx: LakeContext, *, until: str = "now", layer: WaitLayer = "silver", timeout_seconds: float = 60.0
) -> Arrival:
    """Wait until *layer* holds every change that the source had made up to a moment.

    Capture, silver and gold are the work of other processes. A lake in a folder or in S3 is read without Spark.

    I/O: asks the source for its time and for events; reads logs and properties of tables twice a second.

    Args:
        until: ``now``; an operation time of a MongoDB session, ``1764300000,3``; or an ISO 8601 time.

    Raises:
        ConfigurationError: *until* is no such time, or lies in the source's future.
        RetriableError: The layer is still behind after *timeout_seconds*. The message says which layer, and in what.
    """
    started = time.monotonic()
    with opened_oplog(ctx) as (_, oplog):
        at = moment(until, oplog)
        catch_up = CatchUp(ctx, oplog, timeout_seconds)
        version, cut = catch_up.bronze(at), None
        versions = {bronze_table(ctx.settings.source.name): version}
        if layer != "bronze":
            _left(catch_up, started).silver(version)
            cut, versions = _silver_versions(ctx)
        if layer == "gold":
            graph = graph_of(ctx.settings.gold)
            _left(catch_up, started).gold(graph, versions)
            tables = [node.table for node in graph.order() if node.materialized != "view"]
            versions = {table: ctx.tables.version(table) for table in tables}
    named = {str(table): version for table, version in sorted(versions.items())}
    return Arrival(layer, at, named, cut, time.monotonic() - started)


def moment(until: str, oplog: Oplog) -> tuple[int, int]:
    """Return the cluster time that *until* names. I/O: asks the source for its time.

    The server counts the operations of a second. So an ISO 8601 time stands for the end of its second.

    Raises:
        ConfigurationError: *until* is no time, or lies in the source's future.
    """
    present = oplog.present_time()
    if until == "now":
        return present
    if (operation := operation_time_in(until)) is not None:
        at = operation
    elif (seconds := seconds_of(until)) is not None:
        at = (seconds + 1, 0)
        if seconds <= max(present[0], time.time()):  # the cluster time of an idle source stands still
            return min(at, present)
    else:
        raise ConfigurationError(
            f"--until {until!r} is no time", next_step=f"now, an operation time such as 1764300000,3, or {TIME_EXAMPLE}"
        )
    if at > present:
        raise ConfigurationError(
            f"--until {until!r} lies in the source's future", next_step="the operation time of a session, or now"
        )
    return at


def _left(catch_up: CatchUp, started: float) -> CatchUp:
    """Return *catch_up* with the rest of its time."""
    return replace(catch_up, wait_seconds=max(0.0, catch_up.wait_seconds - (time.monotonic() - started)))


def _silver_versions(ctx: LakeContext) -> tuple[int | None, dict[TableName, int]]:
    """Return the newest cut, and the versions of silver. None: silver holds more than that cut names.

    I/O: reads properties of ``control.cuts``.
    """
    index = ProgressIndex.read(ctx.tables, bronze_table(ctx.settings.source.name))
    is_whole = index.cut is not None and all(own.version <= index.cut.bronze_version for own in index.own.values())
    versions = {TableName.parse(name): version for name, version in index.versions.items()}
    return index.cut.number if index.cut is not None and is_whole else None, versions
