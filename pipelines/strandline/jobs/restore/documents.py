"""Documents of one collection at a moment: from its history table where that tells, else folded from bronze."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline.io.tables.ddl import schema_of
from strandline.jobs.context import JobContext
from strandline.jobs.silver.bronze_state import BronzeState
from strandline.jobs.silver.history import history_table
from strandline.model.namespaces import Namespace
from strandline.model.range_digest import RangeDigest
from strandline.model.table_schemas import SILVER_BOOKKEEPING_DDL
from strandline.silver.bronze_increment import BronzeIncrement
from strandline.silver.fold.patches import CURRENT, folded_per_key
from strandline.silver.incarnations import Incarnations, arrivals_at
from strandline.silver.latest import READS, in_namespace
from strandline.silver.progress_index import ProgressIndex
from strandline.silver.sweep import Sweep

Origin = Literal["history", "bronze"]
_PART_BYTES: Final = 32 * 1024 * 1024
"""Aim for the documents that this process holds at a time, in bytes."""
_SUMS_DDL: Final = "documents BIGINT, bytes BIGINT, total STRING, key STRING, reason STRING, is_known BOOLEAN"
_SUMS: Final = pa.schema(
    {
        "documents": pa.int64(),
        "bytes": pa.int64(),
        "total": pa.string(),
        "key": pa.string(),
        "reason": pa.string(),
        "is_known": pa.bool_(),
    }
)


@dataclass(frozen=True)
class InexactDocument:
    """A document that may have been another one at the moment, or that is not known."""

    collection: str
    key: str
    """Its `_key`: the normalised `_id`."""
    reason: str
    """Reason as in ``_inexact_because``, or a sentence about the whole collection."""
    is_written: bool
    """False: no whole document is known, so it is left out."""


@dataclass(frozen=True)
class Expectation:
    """Documents that the target must hold in the end."""

    digest: RangeDigest
    bytes: int
    inexact: tuple[InexactDocument, ...]


@dataclass(frozen=True)
class DocumentsAt:
    """The documents of a collection at a moment."""

    namespace: Namespace
    origin: Origin
    rows: DataFrame
    """``key``, ``document`` (null: unknown) and ``reason`` (null: the document is exact). Lazy."""

    def expectation(self) -> Expectation:
        """Count the documents, sum their digests, and list the inexact ones. I/O: one Spark job."""
        sums = self.rows.mapInArrow(_summing(), _SUMS_DDL).collect()
        inexact = [
            InexactDocument(str(self.namespace), row["key"], row["reason"], row["is_known"])
            for row in sums
            if row["reason"] is not None
        ]
        wholes = [row for row in sums if row["reason"] is None]
        digest = sum((RangeDigest.from_hex(row["documents"], row["total"]) for row in wholes), RangeDigest())
        size = sum(row["bytes"] for row in wholes)
        return Expectation(digest, size, tuple(sorted(inexact, key=lambda one: one.key)))

    def keys(self) -> set[str]:
        """Return the values of ``_key``. I/O: one Spark job."""
        return {row["key"] for row in self.rows.select("key").collect()}

    def stream(self, size: int) -> Iterator[bytes]:
        """Yield the documents. I/O: one Spark job for each part; this process holds two parts at a time.

        Args:
            size: Size of all documents, in bytes.
        """
        documents = self.rows.where(F.col("document").isNotNull()).select("key", "document")
        parts = size // _PART_BYTES + 1
        divided = documents.coalesce(1) if parts == 1 else documents.repartition(parts, "key")
        for row in divided.select("document").toLocalIterator(prefetchPartitions=True):
            yield bytes(row[0])


def documents_at(
    ctx: JobContext,
    bronze: BronzeState,
    index: ProgressIndex,
    namespace: Namespace,
    moment: str,
    *,
    keys: Sequence[str] = (),
    doubt: str | None = None,
) -> DocumentsAt:
    """Return the documents that the collection had at the position *moment*.

    I/O: reads properties of the history table. The documents themselves are read later.

    Args:
        bronze: All of bronze.
        index: Progress of silver and of the histories.
        keys: Values of ``_key``; empty: all documents.
        doubt: Reason why no document is exact. None: there is none.
    """
    versions = _from_history(ctx, bronze, index, namespace, moment)
    rows = _from_bronze(ctx, bronze, namespace, moment, keys) if versions is None else versions
    if keys:
        rows = rows.where(F.col("key").isin(*keys))
    if doubt is not None:
        rows = rows.withColumn("reason", F.lit(doubt))
    return DocumentsAt(namespace, "bronze" if versions is None else "history", rows)


def _from_history(
    ctx: JobContext, bronze: BronzeState, index: ProgressIndex, namespace: Namespace, moment: str
) -> DataFrame | None:
    """Return the versions that were valid at the moment.

    None: the collection keeps no history, the history lacks changes up to the moment, or it leaves out ends of
    collections, deleted documents or rows that a constraint refused.
    """
    settings, table = ctx.settings.silver, history_table(ctx, namespace)
    is_tenant = settings.pattern_of(str(namespace)) is not None  # folded from bronze: the table's keys are others
    is_whole = settings.deletes == "soft" and not settings.keeps_old_lives and not is_tenant
    if not (is_whole and settings.keeps_history(str(namespace)) and ctx.tables.exists(table.name)):
        return None
    reached = index.reached_version(namespace, table.progress())
    if reached < 0 or table.constraints().conditions:
        return None
    news = bronze.increment_after(reached)
    late = [first for positions in news.changed.values() for first in positions.values()]
    late += [event.position for event in news.events]
    late += [at for _, snapshot in news.completed if (at := snapshot.sweep_position(namespace)) is not None]
    if any(position <= moment for position in late):
        return None
    valid = (F.col("_position") <= moment) & F.coalesce(F.col("_valid_to_position") > moment, F.lit(True))
    reason = F.when(F.col("_document").isNull(), "waiting").when(~F.coalesce("_exact", F.lit(True)), "lookup or path")
    versions = ctx.tables.read(table.name).where(valid & ~F.col("_deleted"))
    return versions.select(F.col("_key").alias("key"), F.col("_document").alias("document"), reason.alias("reason"))


def _from_bronze(
    ctx: JobContext, bronze: BronzeState, namespace: Namespace, moment: str, keys: Sequence[str]
) -> DataFrame:
    """Fold the changes up to the moment, as silver does, and apply drops, renames and sweeps up to the moment."""
    increment = bronze.increment_after(-1)
    events = [event for event in increment.events if event.position <= moment]
    arrivals = arrivals_at([event for event in events if event.to == namespace], events, increment.changed)
    incarnations = Incarnations().after(events, namespace, increment.seen(namespace), arrivals)
    rows = bronze.rows().where(F.col("position") <= moment)
    rows = rows.where(in_namespace(namespace) | incarnations.is_brought())
    if keys:
        rows = rows.where(F.col("key").isin(*keys))
    changes = incarnations.with_rename_positions(rows).select(*READS)
    nothing = ctx.spark.createDataFrame([], schema_of(SILVER_BOOKKEEPING_DDL)).select(*CURRENT)
    state = folded_per_key(changes, nothing, gaps=bronze.gaps_of(namespace), lives=incarnations.lives)
    state = incarnations.with_tombstones(state).where(~F.col("_deleted"))
    for sweep in _sweeps(increment, namespace, moment):
        read_keys = sweep.read_keys(ctx.tables, bronze.table).distinct()
        gone = state.where(F.col("_position") < sweep.position).select("_key")
        gone = gone.join(read_keys, F.col("_key").eqNullSafe(F.col("key")), "left_anti")
        gone = gone.withColumnRenamed("_key", "gone")
        state = state.join(gone, F.col("_key").eqNullSafe(F.col("gone")), "left_anti")
    reason = F.coalesce("_inexact_because", F.when(F.col("envelope").isNull(), "waiting"))
    return state.select(F.col("_key").alias("key"), F.col("envelope").alias("document"), reason.alias("reason"))


def _sweeps(increment: BronzeIncrement, namespace: Namespace, moment: str) -> Iterator[Sweep]:
    """Yield the sweeps of the collection up to the moment, by snapshots that read it."""
    for snapshot in increment.sweeping(namespace, -1):
        position, absence_position = snapshot.sweep_position(namespace), snapshot.absence_position(namespace)
        if namespace in snapshot.planned and position and absence_position and position <= moment:
            yield Sweep(snapshot.snapshot_id, namespace, position, absence_position)


def _summing() -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that reduces rows of `DocumentsAt` to one sum, and one row for each inexact document."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        total, size = RangeDigest(), 0
        for batch in batches:
            documents = batch.column("document").to_pylist()
            own = [document for document in documents if document is not None]
            total, size = total + RangeDigest.of(own), size + sum(map(len, own))
            keys, reasons = batch.column("key").to_pylist(), batch.column("reason").to_pylist()
            inexact = [
                {"key": key, "reason": reason, "is_known": document is not None}
                for key, document, reason in zip(keys, documents, reasons, strict=True)
                if reason is not None
            ]
            if inexact:
                yield pa.RecordBatch.from_pylist(inexact, schema=_SUMS)
        row = {"documents": total.documents, "bytes": size, "total": total.to_hex()}
        yield pa.RecordBatch.from_pylist([row], schema=_SUMS)

    return run
