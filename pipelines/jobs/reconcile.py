"""Source against silver, at one cluster time; repaired, if asked for, by reading the documents in question again."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import functions as F

from pipelines.bronze.writer import BronzeWriter
from pipelines.errors import ConfigurationError
from pipelines.io.tables import schema_of
from pipelines.jobs.capture import clock_us, connection_options
from pipelines.jobs.caught_up import CaughtUp
from pipelines.jobs.comparison import Compared, Comparison, keeps_old_lives
from pipelines.jobs.context import JobContext
from pipelines.jobs.repair import repair
from pipelines.jobs.selection import selection_of, stream_of
from pipelines.jobs.source_look import SourceLook
from pipelines.jobs.sources import required_offset
from pipelines.model.columns import RECONCILE, RECONCILE_DDL, bronze_table
from pipelines.model.namespaces import Namespace
from pipelines.silver.ledger import Ledger
from pipelines.source.client import AnyClient, Collection, captured_collections, find_collection, inspect, open_client
from pipelines.source.oplog import Oplog
from pipelines.source.ranges import Range, Reading, plan_chunks
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
    report: Callable[[Compared], None] = lambda _: None,
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
    writer = BronzeWriter(ctx.tables, settings.source.name, run_id, clock_us, stored_json=settings.capture.json_columns == "stored")
    ctx.tables.create(RECONCILE, schema_of(RECONCILE_DDL))
    found = []
    with closing(open_client(options, raw=True)) as client:
        deployment = inspect(client)
        writer.check_owner(deployment.identity, stream_of(settings.capture))
        oplog = Oplog(client, selection, expanded_events=deployment.shows_expanded_events)
        caught_up = CaughtUp(ctx, oplog, wait_seconds)
        for namespace, collection in _wanted(ctx, client, selection, collections):
            ranges = plan_chunks(client, collection, settings.capture.snapshot_chunk_size) if collection is not None else [Range()]
            reading = Reading(selection.fields, fetch_size=settings.capture.snapshot_fetch_size)
            look = SourceLook(ctx.spark, options, collection, ranges, reading, settings.capture.snapshot_max_threads)
            comparison = Comparison(ctx, client, namespace, look, caught_up, run_id, at)
            compared = comparison.run()
            if repairs and compared.differences:
                repaired = repair(writer, options, namespace, comparison.confirmed(), selection.fields)
                comparison.note_repair(datetime.now(UTC))
                compared = replace(compared, repaired=repaired)
            report(compared)
            found.append(compared)
    return Reconciliation(run_id, tuple(found))


def differing_keys(ctx: JobContext, run_id: str, limit: int) -> list[dict[str, Any]]:
    """I/O: the first keys that a run has found, in the order of collections."""
    rows = ctx.tables.read(RECONCILE).where((F.col("run_id") == run_id) & F.col("confirmed"))
    return [row.asDict() for row in rows.orderBy("db", "collection", "kind", "key").select(*LISTED).limit(limit).collect()]


def _wanted(
    ctx: JobContext, client: AnyClient, selection: Selection, wanted: Sequence[str]
) -> Iterator[tuple[Namespace, Collection | None]]:
    """What is compared: collections that are captured, and those that silver knows although the source has them no more (None)."""
    settings = ctx.settings.silver
    there = {Namespace(found.db, found.name) for found in captured_collections(client, selection)}
    there = {namespace for namespace in there if not namespace.is_temporary}
    known = Ledger.read(ctx.tables, ctx.tables.id(bronze_table(ctx.settings.source.name))).own
    gone = set() if keeps_old_lives(settings.on_drop, settings.on_rename) else {name for name in known if selection.admits(*name)} - there
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
