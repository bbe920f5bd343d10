"""Documents in which silver differs, read again by their `_id`s into bronze: what is there as READs, what is not as rows that say so."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.bronze.appender import BronzeAppender
from pipelines.bronze.chunk_rows import ChunkStamp, absent_table, read_table
from pipelines.bronze.envelope import Stamp
from pipelines.errors import RetriableError
from pipelines.model.bson import raw as rb
from pipelines.model.bson.merge_key import document_merge_key
from pipelines.model.field_rules import FieldPolicy
from pipelines.model.namespaces import Namespace
from pipelines.model.position import cluster_time_of
from pipelines.model.table_schemas import BRONZE_DDL
from pipelines.source.client import (
    AnyClient,
    ConnectionOptions,
    find_collection,
    open_client,
    operation_time,
    translate_errors,
)
from pipelines.source.document_reread import read_at

RECONCILED = "reconcile"
"""Stands as the snapshot of a row that belongs to none."""

_DOCUMENTS = 1_000
_BYTES = 4 * 1024 * 1024

Batches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def repair(
    writer: BronzeAppender,
    options: ConnectionOptions,
    namespace: Namespace,
    uuid: str | None,
    found: DataFrame,
    fields: FieldPolicy,
) -> int:
    """I/O: reads the documents on the executors; one commit to bronze, not fenced: the larger position wins.

    A document that is not there becomes a row ``op = 'd'`` at the cluster time of the look. So silver, and every rebuild of it, buries what
    was extra, and a change that comes later stands above. Of an extra row that waits for its document nobody knows the `_id`:
    its key was not there when the two were compared, and the row says so of that time.

    Args:
        uuid: Of the collection that was compared; None: the source has none.
        found: ``identifier`` of each document in question, or, without one, ``key`` and ``compared_at``.

    Returns:
        How many were read, or are known to be gone.
    """
    is_known, stamp = F.col("identifier").isNotNull(), writer.stamp()
    known, waiting = found.where(is_known).select("identifier"), found.where(~is_known).select("key", "compared_at")
    ways = (
        (known, _reading(options, namespace, stamp, writer.stored_json, fields)),
        (waiting, _burying(namespace, uuid, stamp)),
    )
    counted = [(rows.count(), rows, way) for rows, way in ways]
    landing = [rows.mapInArrow(way, BRONZE_DDL) for count, rows, way in counted if count]
    if landing:
        writer.append_frame(reduce(DataFrame.unionByName, landing))
    return sum(count for count, _, _ in counted)


def _burying(namespace: Namespace, uuid: str | None, stamp: Stamp) -> Batches:
    def bury(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                chunk = ChunkStamp(stamp, RECONCILED, 0, *namespace, uuid, *cluster_time_of(row["compared_at"]))
                yield from absent_table([row["key"]], chunk).to_batches()

    return bury


def _reading(
    options: ConnectionOptions, namespace: Namespace, stamp: Stamp, stored_json: bool, fields: FieldPolicy
) -> Batches:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with closing(open_client(options, raw=True)) as client:
            for batch in batches:
                for identifiers in portions(batch.column("identifier").to_pylist()):
                    for rows in _read(client, namespace, identifiers, stamp, stored_json, fields):
                        yield from rows.to_batches()

    return read


def portions(identifiers: Sequence[bytes]) -> Iterator[list[bytes]]:
    """As many as one command can name. Pure."""
    portion: list[bytes] = []
    size = 0
    for identifier in identifiers:
        if portion and (len(portion) == _DOCUMENTS or size + len(identifier) > _BYTES):
            yield portion
            portion, size = [], 0
        portion.append(identifier)
        size += len(identifier)
    if portion:
        yield portion


def _read(
    client: AnyClient,
    namespace: Namespace,
    identifiers: Sequence[bytes],
    stamp: Stamp,
    stored_json: bool,
    fields: FieldPolicy,
) -> Iterator[pa.Table]:
    """The bronze rows of some documents, one for each."""
    with translate_errors(f"reading {namespace}"):
        collection = find_collection(client[namespace.db], namespace.collection)
    at = operation_time(client)
    values = [
        (kind, identifier[value:end]) for identifier in identifiers for kind, _, value, end in rb.elements(identifier)
    ]
    documents = read_at(client, collection, values, at, fields) if collection is not None else []
    with translate_errors(f"reading {namespace}"):
        if find_collection(client[namespace.db], namespace.collection) != collection:
            raise RetriableError(
                f"{namespace} was dropped or made anew while it was read", next_step="strandline reconcile, again"
            )
    uuid, capped = (None, False) if collection is None else (collection.uuid, collection.capped)
    chunk = ChunkStamp(stamp, RECONCILED, 0, *namespace, uuid, *at, capped=capped)
    there = {document_merge_key(document) for document in documents}
    absent = [key for identifier in identifiers if (key := document_merge_key(identifier)) not in there]
    if documents:
        yield read_table(documents, chunk, stored_json=stored_json)
    if absent:
        yield absent_table(absent, chunk)
