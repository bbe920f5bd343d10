"""Source against silver, at one cluster time; repaired, if asked for, by reading the documents in question again."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import functions as F

from pipelines.bronze.appender import BronzeAppender
from pipelines.errors import ConfigurationError
from pipelines.io.ddl import schema_of
from pipelines.jobs.context import JobContext
from pipelines.jobs.offsets.life_cycle import required_offset
from pipelines.jobs.reconcile.catch_up import CatchUpBarrier
from pipelines.jobs.reconcile.comparison import Compared, Comparison, keeps_old_lives
from pipelines.jobs.reconcile.repair import repair
from pipelines.jobs.reconcile.source_digests import SourceDigests
from pipelines.jobs.selection import selection_of, stream_of
from pipelines.jobs.source_connection import connection_options
from pipelines.model.namespaces import Namespace
from pipelines.model.table_schemas import RECONCILE, RECONCILE_DDL, bronze_table
from pipelines.model.timestamps import clock_us
from pipelines.silver.progress_index import ProgressIndex
from pipelines.source.chunk_plan import plan_chunks
from pipelines.source.client import (
    AnyClient,
    Collection,
    ConnectionOptions,
    captured_collections,
    find_collection,
    inspect,
    open_client,
    operation_time,
)
from pipelines.source.oplog import Oplog
from pipelines.source.ranges import Range, Reading
from pipelines.source.stages import Selection

_log = logging.getLogger("strandline.reconcile")
LISTED = ("db", "collection", "kind", "key", "position", "repaired_at")


@dataclass(frozen=True)
class Reconciliation:
    """One run over some collections."""

    run_id: str
    collections: tuple[Compared, ...]

    @property
    def holds(self) -> bool:
        """Whether silver is the source, or will be once what was repaired is merged."""
        return all(compared.differences == compared.repaired for compared in self.collections)


def run_reconcile(
    ctx: JobContext,
    *,
    collections: Sequence[str] = (),
    repairs: bool = False,
    wait_seconds: float = 30.0,
) -> Reconciliation:
    """I/O: reads source and silver on the executors; rows in ``control.reconcile``; with *repairs*, rows in bronze. Calling again is safe.

    Nothing is captured or merged: a running capture and silver go on beside, and without them the lake must have caught up before.

    Args:
        collections: ``db.collection`` names; empty: all that are captured, and all that silver knows.
        repairs: Read again what differs: its documents, or their absence, land in bronze, and the next silver merges them.
        wait_seconds: Longest wait for a capture and a silver that run beside.

    Raises:
        ConfigurationError: Nothing was captured, an unknown collection, or another deployment than bronze's.
        RetriableError: The lake is behind the source.
    """
    required_offset(ctx)
    settings, options = ctx.settings, connection_options(ctx.settings)
    selection = selection_of(settings.capture)
    run_id, at = uuid.uuid4().hex, datetime.now(UTC)
    writer = BronzeAppender(
        ctx.tables, settings.source.name, run_id, clock_us, stored_json=settings.capture.json_columns == "stored"
    )
    ctx.tables.create(RECONCILE, schema_of(RECONCILE_DDL))
    with closing(open_client(options, raw=True)) as client:
        deployment = inspect(client)
        writer.check_owner(deployment.identity, stream_of(settings.capture))
        oplog = Oplog(client, selection, expanded_events=deployment.shows_expanded_events)
        caught_up = CatchUpBarrier(ctx, oplog, wait_seconds)
        comparisons = [
            Comparison(ctx, client, namespace, _look(ctx, client, collection, selection), caught_up, run_id, at)
            for namespace, collection in _wanted(ctx, client, selection, collections)
        ]
        together = operation_time(client)
        reads = [comparison.look.sums(together) for comparison in comparisons]
        last = max((read.at for of_one in reads for read in of_one), default=together)
        caught_up.wait(last, [comparison.namespace for comparison in comparisons])
        found = [comparison.run(of_one) for comparison, of_one in zip(comparisons, reads, strict=True)]
    if repairs:  # after all looks: those wait until silver has merged whatever stands in bronze
        found = [_repaired(writer, options, selection, *pair) for pair in zip(comparisons, found, strict=True)]
    return Reconciliation(run_id, tuple(found))


def _repaired(
    writer: BronzeAppender, options: ConnectionOptions, selection: Selection, comparison: Comparison, compared: Compared
) -> Compared:
    if not compared.differences:
        return compared
    collection = comparison.look.collection
    uuid = collection.uuid if collection is not None else None
    repaired = repair(writer, options, comparison.namespace, uuid, comparison.confirmed(), selection.fields)
    comparison.note_repair(datetime.now(UTC))
    return replace(compared, repaired=repaired)


def _look(ctx: JobContext, client: AnyClient, collection: Collection | None, selection: Selection) -> SourceDigests:
    """A collection in the ranges that a snapshot of it would have."""
    capture = ctx.settings.capture
    ranges = plan_chunks(client, collection, capture.chunk_size) if collection is not None else [Range()]
    reading = Reading(selection.fields, fetch_size=capture.snapshot_fetch_size)
    return SourceDigests(
        ctx.spark, connection_options(ctx.settings), collection, ranges, reading, capture.snapshot_max_threads
    )


def differing_keys(ctx: JobContext, run_id: str, limit: int) -> list[dict[str, Any]]:
    """I/O: the first keys that a run has found, in the order of collections."""
    rows = ctx.tables.read(RECONCILE).where((F.col("run_id") == run_id) & F.col("confirmed"))
    return [
        row.asDict() for row in rows.orderBy("db", "collection", "kind", "key").select(*LISTED).limit(limit).collect()
    ]


def _wanted(
    ctx: JobContext, client: AnyClient, selection: Selection, wanted: Sequence[str]
) -> Iterator[tuple[Namespace, Collection | None]]:
    """What is compared: collections that are captured, and those that silver knows although the source has them no more (None)."""
    settings = ctx.settings.silver
    there = {Namespace(found.db, found.name) for found in captured_collections(client, selection)}
    there = {namespace for namespace in there if not namespace.is_temporary}
    known = ProgressIndex.read(ctx.tables, ctx.tables.id(bronze_table(ctx.settings.source.name))).own_versions
    gone = (
        set()
        if keeps_old_lives(settings.on_drop, settings.on_rename)
        else {name for name in known if selection.admits(*name)} - there
    )
    unknown = set(wanted) - {str(namespace) for namespace in there | gone}
    if unknown:
        raise ConfigurationError(f"{min(unknown)} is no collection that is captured", next_step="strandline doctor")
    for namespace in sorted(there | gone):
        if wanted and str(namespace) not in wanted:
            continue
        collection = find_collection(client[namespace.db], namespace.collection)
        if collection is not None and collection.capped:
            _log.warning("%s is not compared: no server reads the past of a capped collection", namespace)
            continue
        yield namespace, collection
