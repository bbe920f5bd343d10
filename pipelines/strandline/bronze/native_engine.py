"""Append to bronze without Spark: worker processes write data files, and this process commits them with delta-rs.

Table, rows and fencing are the same as with Spark. The lake is a folder of this machine or an object store. See
decision 25.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from deltalake.exceptions import DeltaError

from strandline.bronze.data_files import write_batch, write_read, write_rows
from strandline.bronze.engine import Reader, TransactionId, read_failure
from strandline.bronze.envelope import Batch
from strandline.bronze.fenced_table import FencedTable
from strandline.bronze.worker_pool import WorkerDied, WorkerPool
from strandline.io.delta_log.append_result import AlreadyAppended, Appended, WriterEnded
from strandline.io.delta_log.followed_table import FollowedTable, unwritable_table
from strandline.io.delta_log.parquet_file import DataFile
from strandline.io.delta_log.table_folder import TableFolder
from strandline.io.tables.delta_rs_tables import DeltaRsTables

_log = logging.getLogger("strandline.capture")
_ATTEMPTS: Final = 4
"""Processes that try a task before the capture ends. Spark gives a task as many attempts."""
_CONVERTED_HERE: Final = 2_000
"""Maximum events of a batch whose JSON columns this process fills itself."""


@dataclass(frozen=True)
class NativeEngine:
    """Appends for several threads. Must be closed.

    Args:
        workers: Worker processes. They end with this process.
    """

    table: FollowedTable
    workers: WorkerPool
    _no_reads: threading.Event = field(default_factory=threading.Event, init=False)

    @staticmethod
    def open(tables: DeltaRsTables, bronze: FencedTable, *, workers: int) -> NativeEngine:
        """I/O: opens an existing table. Worker processes start when they are needed.

        Raises:
            ConfigurationError: The table has features that delta-rs does not write.
        """
        pool = WorkerPool(workers, [write_batch.__module__, "pymongo"])
        folder = tables.folder(bronze.table)
        try:
            return NativeEngine(FollowedTable.open(folder), pool)
        except (DeltaError, OSError) as error:
            raise unwritable_table(folder, error) from error

    def append_batch(self, batch: Batch, once: TransactionId) -> Appended | AlreadyAppended:
        if batch.stored_json and len(batch.events) > _CONVERTED_HERE:
            return self._commit([self._worked(write_batch, batch)], once)
        # Without JSON a row costs 5 µs, and its way to a worker 3.
        return self._commit([self._written(write_batch, batch)], once)

    def append_rows(self, rows: pa.Table, once: TransactionId) -> Appended | AlreadyAppended:
        return self._commit([self._written(write_rows, rows)] if rows.num_rows else [], once)

    def append_read(self, reader: Reader, once: TransactionId) -> Appended | AlreadyAppended:
        try:
            file = self._worked(write_read, reader)
        except Exception as error:
            raise read_failure(error) from error
        return self._commit([file], once)

    def append_beside_writers(self, rows: pa.Table, once: TransactionId) -> Appended | AlreadyAppended:
        return self.append_rows(rows, once)

    def _written(self, write: Callable[[TableFolder, Any], DataFile], rows: object) -> DataFile:
        """Write a data file. Raises LakeUnavailable if the disk is full, or the table's folder cannot be written."""
        try:
            return write(self.table.folder, rows)
        except OSError as error:
            raise unwritable_table(self.table.folder, error) from error

    def _worked(self, write: Callable[[TableFolder, Any], DataFile], rows: object) -> DataFile:
        """Write a data file in a worker process. If the process ends, another one begins the file again.

        Raises:
            WriterEnded: The processes of several attempts ended, or a read after `end_reads`. Else as `_written`.
        """
        why = "no more chunks are read"
        for attempt in range(1, _ATTEMPTS + 1):
            if write is write_read and self._no_reads.is_set():
                break
            try:
                return self._written(lambda folder, what: self.workers.run(write, folder, what), rows)
            except WorkerDied as died:
                why = str(died)
                if attempt < _ATTEMPTS and not self._no_reads.is_set():
                    _log.warning("%s; attempt %d of %d follows", why, attempt + 1, _ATTEMPTS)
        raise WriterEnded(f"{why}; nothing is lost", next_step="strandline capture")

    def _commit(self, files: list[DataFile], once: TransactionId) -> Appended | AlreadyAppended:
        return self.table.append_once(files, app_id=once.app_id, sequence=once.sequence, proof=once.proof)

    def end_reads(self) -> None:
        self._no_reads.set()
        self.workers.kill(write_read)

    def close(self) -> None:
        """I/O: ends the workers, and waits for upkeep that has begun."""
        self.workers.close()
        self.table.close()
