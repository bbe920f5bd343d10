"""Write bronze rows as data files, in a worker process of the native engine. No Spark."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import parent_process
from multiprocessing.connection import wait
from typing import Final

import pyarrow as pa

from strandline.bronze.envelope import SCHEMA, Batch, stream_table
from strandline.io.delta_log.parquet_file import DataFile, write_data_file
from strandline.io.delta_log.table_folder import TableFolder
from strandline.model.table_schemas import FEW_VALUES, SKIPPED_BY

_PARSED_AT_ONCE: Final = 5_000
"""Events of a batch per row group. Parsed events take several times their bytes."""


def write_batch(folder: TableFolder, batch: Batch) -> DataFile:
    """I/O: writes a streamed batch as one data file. Raises as `stream_table`."""
    return _write(folder, (rows for part in batch.parts(_PARSED_AT_ONCE) for rows in stream_table(part).to_batches()))


def write_read(folder: TableFolder, reader: Callable[[], Iterator[pa.RecordBatch]]) -> DataFile:
    """I/O: writes the rows of *reader* as one data file, part by part. Raises as *reader*."""
    return _write(folder, reader())


def write_rows(folder: TableFolder, rows: pa.Table) -> DataFile:
    """I/O: writes *rows* as one data file."""
    return _write(folder, rows.to_batches())


def _write(folder: TableFolder, parts: Iterable[pa.RecordBatch]) -> DataFile:
    return write_data_file(folder, SCHEMA, parts, statistics_of=SKIPPED_BY, dictionaries=FEW_VALUES)


def end_with_parent() -> None:
    """Set up a worker: it ends when its parent ends.

    Memory goes back to the system after each file: Arrow's own allocators keep a third of the worker's memory.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    parent = parent_process()
    assert parent is not None  # this is a worker

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="strandline-parent", daemon=True).start()
