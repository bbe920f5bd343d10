"""A snapshot as Spark partitions: one for each range of `_id`, all at one cluster time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa

from strandline.bronze.chunk_rows import ChunkStamp, manifest_table
from strandline.bronze.envelope import Stamp
from strandline.jobs.snapshot.chunk_task import ChunkReader
from strandline.jobs.snapshot.plan import Chunk, make_plan
from strandline.jobs.spark_source.opened_source import OpenedSource
from strandline.model.snapshot_policy import query_document
from strandline.source.client import Collection, find_incarnation, operation_time, translate_errors
from strandline.source.ranges import ReadOptions

RowReader = Callable[[], Iterator[pa.RecordBatch]]
"""Reader of the rows of one partition. It can be sent to another process."""


def batches_of(tables: Sequence[pa.Table]) -> Iterator[pa.RecordBatch]:
    for table in tables:
        yield from table.to_batches()


def snapshot_rows(
    source: OpenedSource, snapshot_id: str, *, may_read_later: bool
) -> tuple[list[pa.Table], list[RowReader]]:
    """Plan a snapshot. Return its control rows, and a reader for each chunk.

    I/O: lists the source's collections and samples them. The readers read the documents.

    Args:
        may_read_later: A chunk that starts after the server has dropped the snapshot's cluster time is read at a later
            one. False: the chunk fails.

    Raises:
        ConfigurationError: As `make_plan`.
        RetriableError: The server does not answer.
    """
    plan, stamp = make_plan(source), source.stamp()

    def control_row(kind: str, content: str, chunk: int = -1) -> pa.Table:
        return manifest_table(ChunkStamp.of_control(stamp, snapshot_id, chunk), kind, content)

    with translate_errors("looking for the collections of a snapshot"):
        incarnations = {
            collection: find_incarnation(source.client, collection)
            for collection in {chunk.collection for chunk in plan.chunks}
        }
    chunks, at = len(plan.chunks), operation_time(source.client)
    control = [control_row("plan", plan.to_json())]
    readers: list[RowReader] = []
    for chunk in plan.chunks:
        if (current := incarnations[chunk.collection]) is None:  # dropped since the plan was made
            left_out = json.dumps({"namespace": str(chunk.collection)})
            control.append(control_row("discarded", left_out, chunk.number))
        else:
            readers.append(_reader(source, stamp, snapshot_id, chunk, current, at, may_read_later))
    control.append(control_row("completed", json.dumps({"chunks": chunks}), chunks))
    return control, readers


def _reader(
    source: OpenedSource,
    stamp: Stamp,
    snapshot_id: str,
    chunk: Chunk,
    current: Collection,
    at: tuple[int, int],
    may_read_later: bool,
) -> RowReader:
    capped = not current.snapshot_reads
    rows = ChunkStamp(stamp, snapshot_id, chunk.number, current.db, current.name, current.uuid, 0, 0, capped=capped)
    reading = ReadOptions(source.selection.fields, query_document(chunk.query), source.settings.snapshot_fetch_size)
    return ChunkReader(
        source.options, current, chunk.range, rows, source.stored_json, reading, at, may_read_later=may_read_later
    )


def control_reader(tables: Sequence[pa.Table]) -> RowReader:
    """Return the reader of rows that are known already."""
    return partial(batches_of, tables)
