"""Reconcile: compare silver with the source at one cluster time, and repair differences by reading documents again."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from strandline.bronze.appender import BronzeAppender
from strandline.errors import ConfigurationError
from strandline.io.telemetry.progress import PROGRESS
from strandline.jobs.catch_up import CatchUp
from strandline.jobs.lake_context import PipelineContext
from strandline.jobs.offsets.life_cycle import required_offset
from strandline.jobs.offsets.show_offset import unhealed_gaps
from strandline.jobs.reconcile.comparison import Comparison, ComparisonResult
from strandline.jobs.reconcile.source_digests import SourceDigests
from strandline.jobs.selection import selection_of, stream_identity
from strandline.jobs.silver.table_names import collections_of
from strandline.jobs.source_connection import capture_oplog, connection_options
from strandline.model.gap import Gap
from strandline.model.namespaces import Namespace
from strandline.model.query import Query
from strandline.model.table_schemas import RECONCILE, RECONCILE_DDL, bronze_table
from strandline.model.timestamps import clock_us
from strandline.silver.progress_index import ProgressIndex
from strandline.source.chunk_plan import plan_chunks
from strandline.source.client import (
    AnyClient,
    Collection,
    find_collection,
    open_client,
    operation_time,
)
from strandline.source.deployment import Deployment, inspect_deployment
from strandline.source.listing import list_source
from strandline.source.ranges import Range, ReadOptions
from strandline.source.stages import Selection

_log = logging.getLogger("strandline.reconcile")
LISTED_COLUMNS = ("db", "collection", "kind", "key", "position", "paths", "repaired_at")


@dataclass(frozen=True)
class Reconciliation:
    """Result of one reconcile run."""

    run_id: str
    collections: tuple[ComparisonResult, ...]

    @property
    def holds(self) -> bool:
        """True if silver equals the source, or will do so once silver has merged the repairs."""
        return all(result.differences == result.repaired for result in self.collections)


def run_reconcile(
    ctx: PipelineContext,
    *,
    collections: Sequence[str] = (),
    typed: bool = False,
    repairs: bool = False,
    wait_seconds: float = 30.0,
) -> Reconciliation:
    """Compare silver with the source, and repair the differences if asked to.

    Nothing is captured or merged. Capture and silver may run meanwhile; without them the lake must have caught up.

    I/O: reads source and silver; writes ``control.reconcile`` and, with *repairs*, bronze. Calling
    again is safe.

    Args:
        ctx: The pipeline.
        collections: ``db.collection`` names; empty: all captured collections, and all that silver has.
        typed: Compare every column and ``_rescued`` with the row's document, too, also in history tables.
        repairs: Read differing documents again and append them, or their absence, to bronze. The next silver run
            merges these rows.
        wait_seconds: Maximum wait for bronze and for silver to catch up.

    Raises:
        ConfigurationError: Nothing was captured yet, a collection is unknown, or bronze is from another deployment.
        RetriableError: The lake is behind the source.
    """
    required_offset(ctx)
    with opened_comparisons(ctx, wait_seconds) as lake:
        comparisons = [
            lake.comparison(namespace, _source_digests(lake, collection))
            for namespace, collection in lake.collections(collections)
        ]
        read_at = operation_time(lake.client)
        results = _results(comparisons, read_at, lake.catch_up, typed=typed)
    if repairs:  # after all comparisons: a comparison waits until silver has merged all rows of bronze
        fields = lake.selection.fields
        results = [
            replace(result, repaired=comparison.repair(lake.writer, fields)) if result.differences else result
            for comparison, result in zip(comparisons, results, strict=True)
        ]
    gaps = unhealed_gaps(ctx.tables, bronze_table(ctx.settings.source.name))
    return Reconciliation(lake.run_id, tuple(replace(result, gap=_gap_of(result, gaps)) for result in results))


@dataclass(frozen=True)
class OpenedComparisons:
    """Connection, wait and writer that the comparisons of one run share."""

    ctx: PipelineContext
    client: AnyClient
    """Opened with ``raw=True``."""
    selection: Selection
    catch_up: CatchUp
    writer: BronzeAppender
    """Writer of repairs."""
    run_id: str
    at: datetime
    """Start of the run, UTC."""

    def collections(self, names: Sequence[str]) -> Iterator[tuple[Namespace, Collection | None]]:
        """Yield captured collections, and those in silver that the source no longer has (None). *names* empty: all."""
        return _collections_to_compare(self.ctx, self.client, self.selection, names)

    def comparison(self, namespace: Namespace, source: SourceDigests) -> Comparison:
        return Comparison(self.ctx, self.client, namespace, source, self.catch_up, self.run_id, self.at)


@contextmanager
def opened_comparisons(
    ctx: PipelineContext, wait_seconds: float, stop: threading.Event | None = None
) -> Iterator[OpenedComparisons]:
    """Connect to the source, and check that it can be compared. Arguments, errors: see `run_reconcile`.

    I/O: reads the source and the end of bronze; creates ``control.reconcile``.
    """
    settings, options = ctx.settings, connection_options(ctx.settings)
    selection, run_id = selection_of(settings.capture), uuid.uuid4().hex
    stored_json = settings.capture.json_columns == "stored"
    writer = BronzeAppender(ctx.tables, settings.source.name, run_id, clock_us, stored_json=stored_json)
    ctx.tables.create_table(RECONCILE, RECONCILE_DDL)
    with closing(open_client(options, raw=True)) as client:
        deployment = inspect_deployment(client, options.uri)
        require_snapshot_reads(deployment)
        writer.check_owner(deployment.identity, stream_identity(settings.capture))
        oplog = capture_oplog(client, selection, settings.capture, deployment)
        catch_up = CatchUp(ctx, oplog, wait_seconds, stop or threading.Event())
        yield OpenedComparisons(ctx, client, selection, catch_up, writer, run_id, datetime.now(UTC))


def _gap_of(result: ComparisonResult, gaps: Sequence[Gap]) -> str | None:
    return next((gap.summary() for gap in gaps if gap.affects(result.collection)), None)


def _results(
    comparisons: Sequence[Comparison], read_at: tuple[int, int], catch_up: CatchUp, *, typed: bool
) -> list[ComparisonResult]:
    """Return the result of each comparison. I/O: as `run_reconcile`, without repairs."""
    collections = len(comparisons)
    with PROGRESS.step("reading the source", "collections", collections) as step:
        reads = [comparison.read_source(read_at) for comparison in step.over(comparisons, _name)]
    last = max((range_read.at for of_collection in reads for range_read in of_collection.values()), default=read_at)
    catch_up.silver(catch_up.bronze(last), [comparison.namespace for comparison in comparisons])
    with PROGRESS.step("comparing silver", "collections", collections) as step:
        pairs = zip(step.over(comparisons, _name), reads, strict=True)
        results = [comparison.run(of_collection) for comparison, of_collection in pairs]
    if not typed:
        return results
    with PROGRESS.step("comparing columns", "collections", collections) as step:
        compared = zip(step.over(comparisons, _name), results, strict=True)
        return [comparison.with_columns(result) for comparison, result in compared]


def _name(comparison: Comparison) -> str:
    return str(comparison.namespace)


def require_snapshot_reads(deployment: Deployment) -> None:
    """Raise ConfigurationError if the server cannot read collections as they were at one moment. Pure."""
    if not deployment.has_snapshot_reads:
        raise ConfigurationError(
            f"reconcile compares at one moment, and MongoDB {deployment.version} cannot read the past (5.0 can)",
            next_step="upgrade MongoDB to 5.0 or newer; strandline snapshot start reads a collection again",
        )


def _source_digests(lake: OpenedComparisons, collection: Collection | None) -> SourceDigests:
    """Divide a collection into the ranges that a snapshot of it would have."""
    capture = lake.ctx.settings.capture
    ranges = plan_chunks(lake.client, collection, capture.chunk_size) if collection is not None else [Range()]
    reading = ReadOptions(lake.selection.fields, fetch_size=capture.snapshot_fetch_size)
    options = connection_options(lake.ctx.settings)
    return SourceDigests(options, collection, ranges, reading, capture.snapshot_max_threads)


def differing_keys(ctx: PipelineContext, run_id: str, limit: int) -> list[dict[str, Any]]:
    """Return the first *limit* differing keys of a run, by collection. I/O: reads ``control.reconcile``."""
    rows = Query(RECONCILE).select(*LISTED_COLUMNS).where(("run_id", "=", run_id), ("confirmed", "=", True))
    return ctx.tables.query(rows.order("db", "collection", "kind", "key").limit(limit))


def _collections_to_compare(
    ctx: PipelineContext, client: AnyClient, selection: Selection, names: Sequence[str]
) -> Iterator[tuple[Namespace, Collection | None]]:
    """Yield captured collections, and those in silver that the source no longer has (None)."""
    settings = ctx.settings.silver
    listing = list_source(client, selection)
    present = {Namespace(captured.db, captured.name) for captured in listing.collections}
    present = {namespace for namespace in present if not namespace.is_temporary}
    unlike = {*map(Namespace.parse, selection.scheduled), *(Namespace(item.db, item.name) for item in listing.left_out)}
    own_progress = ProgressIndex.read(ctx.tables, bronze_table(ctx.settings.source.name)).own
    owned = {name for holder in own_progress for name in collections_of(ctx, holder)}
    gone = set() if settings.keeps_old_lives else {name for name in owned if selection.admits(*name)} - present
    gone -= unlike  # they have no history of changes: a scheduled read compares them
    unknown = set(names) - {str(namespace) for namespace in present | gone}
    if by_schedule := sorted(unknown & set(selection.scheduled)):
        raise ConfigurationError(
            f"{by_schedule[0]} is read by schedule, and each read compares it as a whole",
            next_step=f"strandline snapshot start --collection {by_schedule[0]}",
        )
    if unknown:
        raise ConfigurationError(f"{min(unknown)} is no collection that is captured", next_step="strandline doctor")
    for namespace in sorted(present | gone):
        if names and str(namespace) not in names:
            continue
        collection = find_collection(client[namespace.db], namespace.collection)
        if collection is not None and not collection.snapshot_reads:
            _log.warning("%s is not compared: before 8.0 no server reads the past of a capped collection", namespace)
            continue
        yield namespace, collection
