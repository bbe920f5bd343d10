"""Append to bronze without Spark: worker processes write data files, and this process commits them.

Table, rows and fencing are the same as with Spark. The lake must be a folder of this machine. See decision 25.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from pipelines.bronze.data_files import end_with_parent, write_batch, write_read, write_rows
from pipelines.bronze.engine import Reader, SparkEngine, TransactionId
from pipelines.bronze.envelope import Batch
from pipelines.errors import ConfigurationError, RetriableError
from pipelines.io.append_result import AlreadyAppended, Appended, WriterEnded
from pipelines.io.checkpoint import CheckpointWriter, checkpoint_interval
from pipelines.io.delta_log import DeltaLog, require_known_features
from pipelines.io.parquet_file import DataFile

_WRITTEN_HERE = 2_000
"""Maximum events of a batch that this process writes itself: faster than sending them to a worker."""


class ReadFailed(Exception):
    """A worker failed while it read. The caller decides whether to retry.

    Refusals and missing answers of the source are raised as they are.
    """


@dataclass(frozen=True)
class NativeEngine:
    """Appends for several threads. Must be closed.

    Args:
        workers: Worker processes. They end with this process.
    """

    log: DeltaLog
    checkpoints: CheckpointWriter
    workers: ProcessPoolExecutor
    _committing: threading.Lock = field(default_factory=threading.Lock)
    _taken_before: dict[str, int] = field(default_factory=dict)
    """By application id: the sequence that was taken before this engine's first append. -1: none."""

    @staticmethod
    def of(spark: SparkEngine, version: int, *, workers: int) -> NativeEngine:
        """I/O: opens an existing table. Worker processes start when they are needed.

        Args:
            version: Version of the table before any append of this writer.

        Raises:
            ConfigurationError: The table is not in a folder of this machine, or needs other writer features.
        """
        log = _log_of(spark, version)
        interval = checkpoint_interval(spark.tables.properties(spark.table))
        processes = multiprocessing.get_context("forkserver")  # a fork would copy locks that threads hold
        processes.set_forkserver_preload([write_batch.__module__, "pymongo"])
        pool = ProcessPoolExecutor(workers, processes, initializer=end_with_parent)
        return NativeEngine(log, CheckpointWriter(log.folder, interval), pool)

    def append_batch(self, batch: Batch, once: TransactionId) -> Appended | AlreadyAppended:
        if len(batch.events) <= _WRITTEN_HERE:
            return self._commit(write_batch(self.log.folder, batch), once)
        return self._commit(self._worked(write_batch, self.log.folder, batch), once)

    def append_rows(self, rows: pa.Table, once: TransactionId) -> Appended | AlreadyAppended:
        return self._commit(write_rows(self.log.folder, rows), once)

    def append_read(self, read: Reader, once: TransactionId) -> Appended | AlreadyAppended:
        try:
            file = self._worked(write_read, self.log.folder, read)
        except (RetriableError, ConfigurationError):  # no answer or a refusal of the source, or the worker is gone
            raise
        except Exception as error:
            raise ReadFailed(type(error).__name__) from error
        return self._commit(file, once)

    def _worked(self, work: Callable[..., DataFile], *given: object) -> DataFile:
        try:
            return self.workers.submit(work, *given).result()
        except BrokenExecutor:
            raise WriterEnded(
                "a worker process of the native engine ended (see its message above; without one it ran out of memory);"
                " nothing is lost",
                next_step="strandline capture",
            ) from None

    def _commit(self, file: DataFile, once: TransactionId) -> Appended | AlreadyAppended:
        with self._committing:
            if self._was_taken(once):
                return AlreadyAppended()
            landed = self.log.append_once([file], app_id=once.app_id, sequence=once.sequence, proof=once.proof)
            self.checkpoints.write_if_due(self.log.version)
            return landed

    def _was_taken(self, once: TransactionId) -> bool:
        """Return True if the sequence was taken before the first append here, also by a commit that is no longer known.

        Only a checkpoint may know it: a RESTORE took the commit back, and its log file is gone.
        """
        if once.app_id not in self._taken_before:
            taken = DeltaTable(str(self.log.folder)).transaction_version(once.app_id)
            self._taken_before[once.app_id] = -1 if taken is None else taken
        return self._taken_before[once.app_id] >= once.sequence

    def alone(self) -> AbstractContextManager[object]:
        return self._committing

    def close(self) -> None:
        """Raise WriterEnded if the last commit was replaced."""
        self.workers.shutdown(cancel_futures=True)
        self.checkpoints.close()
        self.log.check()


def append_at_once(
    spark: SparkEngine, rows: pa.Table, once: TransactionId, version: int
) -> Appended | AlreadyAppended | None:
    """I/O: one commit of *rows* that wins against a busy writer: the commit is prepared first, then put in place.

    Args:
        version: As in `NativeEngine.of`.

    Returns:
        None: this machine cannot commit to the table's folder.
    """
    try:
        log = _log_of(spark, version)
        file = write_rows(log.folder, rows)
        return log.append_once([file], app_id=once.app_id, sequence=once.sequence, proof=once.proof)
    except ConfigurationError:
        return None


def _log_of(spark: SparkEngine, version: int) -> DeltaLog:
    """Open the log. Raises as `NativeEngine.of`."""
    lake, folder = spark.tables.lake, Path(spark.tables.lake.path(spark.table))
    if not lake.by_path or lake.in_object_store or not (folder / "_delta_log").is_dir():
        raise ConfigurationError(
            f"the native engine writes into a folder of this machine, and {spark.table} is in none",
            next_step="set capture.engine: spark",
        )
    log = DeltaLog(folder, version)
    features = log.log.writer_features()
    require_known_features(spark.tables.detail(spark.table)["tableFeatures"] if features is None else features, folder)
    return log
