"""Repair: read differing documents again by `_id`, and append READs of them, or deletes of absent ones, to bronze."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing

import pyarrow as pa
import pyarrow.compute as pc

from strandline.bronze.appender import BronzeAppender
from strandline.bronze.chunk_rows import ChunkStamp, absent_table, read_table
from strandline.bronze.envelope import Stamp
from strandline.errors import RetriableError
from strandline.model.bson import raw as rb
from strandline.model.bson.merge_key import document_merge_key
from strandline.model.field_rules import FieldPolicy
from strandline.model.namespaces import Namespace
from strandline.model.position import cluster_time_of, snapshot_position
from strandline.silver.reconcile_diff import Batches
from strandline.source.client import (
    AnyClient,
    ConnectionOptions,
    find_collection,
    open_client,
    operation_time,
    translate_errors,
)
from strandline.source.document_reread import portions, read_documents_at

REPAIR_SNAPSHOT_ID = "reconcile"
"""Snapshot id of repair rows, which belong to no snapshot."""

_IDLE_SECONDS = 30.0
"""Maximum wait for a later cluster time. A replica set without writes moves it every ten seconds."""
_POLL_SECONDS = 0.2


def repairing(
    options: ConnectionOptions,
    namespace: Namespace,
    uuid: str | None,
    writer: BronzeAppender,
    fields: FieldPolicy,
    newest: str,
) -> Batches:
    """Return the function that reads differing documents again, and makes rows of bronze of them.

    I/O: reads the source where the engine runs. The rows need no fencing: the larger position wins.

    An absent document becomes a row ``op = 'd'`` at the cluster time of the read. Silver and every rebuild then delete
    the extra row, and a later change still wins. The `_id` of an extra row without a document is unknown: its delete
    has the cluster time of the comparison, which did not find its key.

    A batch has one row per difference: ``identifier``, and ``key`` and ``compared_at`` in case the `_id` is unknown.

    Args:
        options: Connection to the source.
        namespace: The collection.
        uuid: UUID of the collection that was compared; None: the source no longer has the collection.
        writer: Writer of bronze.
        fields: Field rules of the capture.
        newest: Newest position of a row that is repaired. The documents are read at a later cluster time.
    """
    stamp, stored_json = writer.stamp(), writer.stored_json

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with closing(open_client(options, raw=True)) as client:
            for batch in batches:
                is_known = batch["identifier"].is_valid()
                for identifiers in portions(batch["identifier"].drop_null().to_pylist()):
                    for rows in _read(client, namespace, identifiers, stamp, stored_json, fields, newest):
                        yield from rows.to_batches()
                for row in batch.filter(pc.invert(is_known)).to_pylist():
                    chunk = ChunkStamp(
                        stamp, REPAIR_SNAPSHOT_ID, 0, *namespace, uuid, *cluster_time_of(row["compared_at"])
                    )
                    yield from absent_table([row["key"]], chunk).to_batches()

    return run


def time_after(client: AnyClient, position: str) -> tuple[int, int]:
    """Return the source's cluster time (seconds, increment), once it is later than *position*.

    Silver takes the larger position. So a READ at the cluster time of the row that it repairs would change nothing.

    I/O: asks the source for its time, and waits while it is idle.

    Raises:
        RetriableError: The time stands still.
    """
    deadline = time.monotonic() + _IDLE_SECONDS
    while snapshot_position(*(at := operation_time(client))) <= position:
        if time.monotonic() >= deadline:
            raise RetriableError(
                f"the source's cluster time has not moved for {_IDLE_SECONDS:g} seconds",
                next_step="strandline reconcile --repair, after the next write",
            )
        time.sleep(_POLL_SECONDS)
    return at


def _read(
    client: AnyClient,
    namespace: Namespace,
    identifiers: Sequence[bytes],
    stamp: Stamp,
    stored_json: bool,
    fields: FieldPolicy,
    newest: str,
) -> Iterator[pa.Table]:
    """Yield one bronze row for each identifier: a READ of its document, or a delete if it is absent."""
    with translate_errors(f"reading {namespace}"):
        collection = find_collection(client[namespace.db], namespace.collection)
    at = time_after(client, newest)
    values = [
        (kind, identifier[value:end]) for identifier in identifiers for kind, _, value, end in rb.elements(identifier)
    ]
    documents = read_documents_at(client, collection, values, at, fields) if collection is not None else []
    with translate_errors(f"reading {namespace}"):
        if find_collection(client[namespace.db], namespace.collection) != collection:
            raise RetriableError(
                f"{namespace} was dropped or made anew while it was read", next_step="strandline reconcile, again"
            )
    uuid, capped = (None, False) if collection is None else (collection.uuid, not collection.snapshot_reads)
    chunk = ChunkStamp(stamp, REPAIR_SNAPSHOT_ID, 0, *namespace, uuid, *at, capped=capped)
    present = {document_merge_key(document) for document in documents}
    absent = [key for identifier in identifiers if (key := document_merge_key(identifier)) not in present]
    if documents:
        yield read_table(documents, chunk, stored_json=stored_json)
    if absent:
        yield absent_table(absent, chunk)
