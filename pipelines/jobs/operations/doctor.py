"""Checks before a run: source, position, lake, files of gold and quality. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime

from pipelines.errors import ResumePointLost
from pipelines.jobs.gold.job import NO_GOLD
from pipelines.jobs.gold.planned import graph_of
from pipelines.jobs.gold.quality import NO_SUITES, suites_of
from pipelines.jobs.lake_context import LakeContext
from pipelines.jobs.migration import describe_format
from pipelines.jobs.offsets.life_cycle import last_offset
from pipelines.jobs.selection import (
    check_collection_limit,
    check_ids,
    check_snapshot_reads,
    inspect_selection,
    selection_of,
)
from pipelines.jobs.source_connection import connection_options
from pipelines.model.resume_token import RESET_OR_HEAL
from pipelines.model.table_schemas import bronze_table
from pipelines.settings.capture import CaptureSettings
from pipelines.settings.configuration import Settings
from pipelines.silver.column_mapping import mapping_note
from pipelines.source.client import open_client, operation_time
from pipelines.source.deployment import inspect_deployment
from pipelines.source.oplog import Oplog
from pipelines.source.stages import Selection


def diagnose(ctx: LakeContext) -> dict[str, str]:
    """Check source, lake, gold and quality. Return one line of text for each check.

    I/O: connects to the source and opens its change stream; reads bronze's offset and the files of gold and quality.

    Raises:
        StrandlineError: The first problem that would stop a capture; if there is none, the first that would stop gold.
    """
    return {**_source(ctx), **_lake(ctx), **_files(ctx.settings)}


def _source(ctx: LakeContext) -> dict[str, str]:
    options, capture = connection_options(ctx.settings), ctx.settings.capture
    with closing(open_client(options)) as client, closing(open_client(options, raw=True)) as raw_client:
        deployment = inspect_deployment(client)
        selection = selection_of(capture)
        identifiers = check_ids(capture, selection, client, deployment)
        snapshots = check_snapshot_reads(selection, deployment)
        selected = inspect_selection(selection, client, deployment)
        seconds, _ = operation_time(client)
        oplog = Oplog(raw_client, selection, expanded_events=deployment.shows_expanded_events)
        oplog.token_at()
        position = _position(ctx, oplog)
    topology = "sharded cluster" if deployment.sharded else f"replica set {deployment.set_name}"
    return {
        "MongoDB": f"{deployment.version}, {topology}",
        "operation time": datetime.fromtimestamp(seconds, UTC).isoformat(),
        "expanded events": "yes" if deployment.shows_expanded_events else "no (needs 6.0): no collection UUIDs",
        "captured": "; ".join(
            [f"{len(selected.collections)} collections", *selected.warnings, *check_collection_limit(capture, selected)]
        ),
        "guardrail": f"at most {most} collections" if (most := capture.guardrail_collections_max) else "none",
        "_ids": identifiers,
        "snapshots": f"read documents {snapshots}",
        "images": _images(selection),
        "change stream": "can be opened",
        "position": position,
    }


def _images(selection: Selection) -> str:
    return "recorded by every captured collection" if selection.images.recorded else "not asked for (capture.mode)"


def _position(ctx: LakeContext, oplog: Oplog) -> str:
    last = last_offset(ctx)
    if last is None:
        return "none yet"
    if last.resume_token is None:
        return "reset: the next capture starts at the present"
    if (why := oplog.unusable_reason(last.resume_token)) is None:
        return f"of batch {last.batch}: the source still has the history behind it"
    return _lost(last.batch, why, ctx.settings.capture)


def _lost(batch: int, why: str, capture: CaptureSettings) -> str:
    lost = f"of batch {batch}: {why}"
    if capture.lost_history_policy == "fail":
        raise ResumePointLost(f"the position {lost}", next_step=RESET_OR_HEAL)
    return f"{lost}; the next capture goes on by capture.on_history_lost ({capture.lost_history_policy})"


def _lake(ctx: LakeContext) -> dict[str, str]:
    lake, bronze = ctx.tables.lake, bronze_table(ctx.settings.source.name)
    return {
        "lake": lake.path(bronze) if lake.by_path else lake.sql(bronze),
        "bronze": "there" if ctx.tables.exists(bronze) else "not there yet",
        "format": describe_format(ctx),
        "silver": "; ".join(_mapped_tables(ctx)) or "no field name forces column mapping upon a portable table",
    }


def _mapped_tables(ctx: LakeContext) -> Iterator[str]:
    for table in ctx.tables.names("silver"):
        if note := mapping_note(table, ctx.tables.properties(table)):
            yield note


def _files(settings: Settings) -> dict[str, str]:
    gold, quality = settings.gold, settings.quality
    nodes, suites = graph_of(gold).nodes, suites_of(quality)
    return {
        "gold": f"{len(nodes)} views and tables, {gold.sql_dir}" if nodes else NO_GOLD,
        "quality": f"{len(suites)} suites, {quality.suites_dir}" if suites else NO_SUITES,
    }
