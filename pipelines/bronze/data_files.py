"""Bronze rows as data files: what a worker process of the native engine does. No Spark."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import parent_process
from multiprocessing.connection import wait
from pathlib import Path
from typing import Final

import pyarrow as pa

from pipelines.bronze.envelope import SCHEMA, Batch, stream_table
from pipelines.io.parquet_file import DataFile, write_data_file
from pipelines.model.table_schemas import SKIPPED_BY

_PARSED_AT_ONCE: Final = 20_000
"""Events of a batch: parsed, they take several times their bytes. Each part is a row group of the file."""

_FEW_VALUES: Final = (
    *(
        "batch",
        "op",
        "operation_type",
        "db",
        "collection",
        "collection_uuid",
        "cluster_time",
        "captured_at",
        "snapshot_id",
        "chunk",
    ),
    *(
        "lineage",
        "ends_outside_transaction",
        "writer",
        "source.version",
        "source.name",
        "source.ts_ms",
        "source.snapshot",
    ),
)


def write_batch(folder: Path, batch: Batch) -> DataFile:
    """I/O: one data file of a streamed batch. Raises as `stream_table`."""
    return _write(folder, (rows for part in batch.parts(_PARSED_AT_ONCE) for rows in stream_table(part).to_batches()))


def write_read(folder: Path, read: Callable[[], Iterator[pa.RecordBatch]]) -> DataFile:
    """I/O: one data file of what *read* brings, part by part. Raises what it raises."""
    return _write(folder, read())


def write_rows(folder: Path, rows: pa.Table) -> DataFile:
    """I/O: one data file."""
    return _write(folder, rows.to_batches())


def _write(folder: Path, parts: Iterable[pa.RecordBatch]) -> DataFile:
    return write_data_file(folder, SCHEMA, parts, statistics_of=SKIPPED_BY, dictionaries=_FEW_VALUES)


def end_with_parent() -> None:
    """In a worker: no signal of the terminal ends it in the middle of a file, and it does not outlive its parent, however that ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None  # this is a worker

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="strandline-parent", daemon=True).start()
