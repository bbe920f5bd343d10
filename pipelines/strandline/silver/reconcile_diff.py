"""Comparison of silver with the source for `reconcile`: digest sums by `_id` range, documents of a range, differences.

Pure: DataFrame → DataFrame, lazy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline.model.bson.id_order import RangeFinder, id_document
from strandline.model.range_digest import RangeDigest, digest

_SUMS_DDL: Final = "number INT, documents BIGINT, total STRING"
DOCUMENTS_DDL: Final = "key STRING, position STRING, moved BOOLEAN, identifier BINARY, digest BINARY"
_DOCUMENTS = pa.schema(
    [
        ("key", pa.string()),
        ("position", pa.string()),
        ("moved", pa.bool_()),
        ("identifier", pa.binary()),
        ("digest", pa.binary()),
    ]
)
WAITING_RANGE: Final = -1
"""Range number of rows that wait for their document. Their `_id` range is not known."""
_READS = ("_key", "_position", "_deleted", "_document")

Batches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def silver_sums(rows: DataFrame, bounds: Sequence[bytes], through: Sequence[str]) -> DataFrame:
    """Count the live documents of each `_id` range and sum their digests.

    Args:
        rows: Silver table.
        bounds: Boundaries between the ranges, in MongoDB's sort order.
        through: Position at which each range was read from the source. Rows that changed later are left out.

    Returns:
        One row for each range: ``number``, ``documents``, and ``parts`` for `RangeDigest.from_parts`. Rows that wait
        for their document are counted under the range number `WAITING_RANGE`.
    """
    living = rows.where(~F.col("_deleted")).select("_position", "_document")
    of_partitions = living.mapInArrow(_summing(tuple(bounds), tuple(through)), _SUMS_DDL)
    # Added on the executors: a large table has as many partitions as ranges, and each partition may hold all ranges.
    parts = [F.sum(F.conv(F.substring("total", 1 + at, 8), 16, 10).cast("BIGINT")) for at in range(0, 32, 8)]
    return of_partitions.groupBy("number").agg(F.sum("documents").alias("documents"), F.array(*parts).alias("parts"))


def _summing(bounds: tuple[bytes, ...], through: tuple[str, ...]) -> Batches:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        finder = RangeFinder(bounds)
        sums: dict[int, RangeDigest] = {}
        for batch in batches:
            documents: dict[int, list[bytes]] = {}
            for position, document in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                number = WAITING_RANGE if document is None else finder.number(document)
                if number == WAITING_RANGE or position <= through[number]:
                    documents.setdefault(number, []).append(document or b"")
            for number, contents in documents.items():
                sums[number] = sums.get(number, RangeDigest()) + RangeDigest.of(contents)
        yield _sums_batch(sums)

    return run


def _sums_batch(sums: dict[int, RangeDigest]) -> pa.RecordBatch:
    """Return *sums* (range number → digest) as rows of `_SUMS_DDL`."""
    schema = pa.schema([("number", pa.int32()), ("documents", pa.int64()), ("total", pa.string())])
    rows = [{"number": number, "documents": total.documents, "total": total.to_hex()} for number, total in sums.items()]
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def silver_documents(rows: DataFrame, bounds: Sequence[bytes], numbers: Collection[int], through: str) -> DataFrame:
    """Return the digests of live documents in some ranges, and every live or deleted row changed after *through*.

    Args:
        rows: Silver table.
        bounds: Boundaries between the ranges, in MongoDB's sort order.
        numbers: Numbers of the ranges to return.
        through: Position at which the source is read.

    Returns:
        Rows of `DOCUMENTS_DDL`; ``moved`` is true for a change after *through*. A row that waits for its document is
        always returned, with null ``identifier`` and ``digest``.
    """
    live_rows = rows.where(~F.col("_deleted") | (F.col("_position") > through)).select(*_READS)
    return live_rows.mapInArrow(_listing(tuple(bounds), frozenset(numbers), through), DOCUMENTS_DDL)


def _listing(bounds: tuple[bytes, ...], numbers: frozenset[int], through: str) -> Batches:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        finder = RangeFinder(bounds)
        for batch in batches:
            entries = []
            for row in batch.to_pylist():
                document, moved = row["_document"], row["_position"] > through
                if moved or document is None or finder.number(document) in numbers:
                    fields = (
                        {"identifier": id_document(document), "digest": digest(document)}
                        if document is not None
                        else {}
                    )
                    entries.append({"key": row["_key"], "position": row["_position"], "moved": moved, **fields})
            yield pa.RecordBatch.from_pylist(entries, schema=_DOCUMENTS)

    return run


def differences(source: DataFrame, silver: DataFrame) -> DataFrame:
    """Return the documents that differ between the source and silver.

    Args:
        source: ``key``, ``identifier``, ``digest``; unique by key.
        silver: Rows of `DOCUMENTS_DDL`; unique by key. Rows with ``moved`` are not compared.

    Returns:
        ``key``, ``kind`` (``missing`` or ``extra`` in silver, or ``different``), ``identifier``, ``position`` (of the
        silver row; null if there is none). Empty if both sides are equal.
    """
    silver, source = silver.alias("silver"), source.alias("source")
    is_missing, is_extra = F.col("silver.key").isNull(), F.col("source.key").isNull()
    is_different = ~F.col("silver.digest").eqNullSafe(F.col("source.digest"))
    kind = (
        F.when(is_missing, "missing")
        .when(F.col("silver.moved"), None)
        .when(is_extra, "extra")
        .when(is_different, "different")
    )
    return (
        source.join(silver, F.col("source.key") == F.col("silver.key"), "full")
        .select(
            F.coalesce("source.key", "silver.key").alias("key"),
            kind.alias("kind"),
            F.coalesce("source.identifier", "silver.identifier").alias("identifier"),
            F.col("silver.position").alias("position"),
        )
        .where(F.col("kind").isNotNull())
    )
