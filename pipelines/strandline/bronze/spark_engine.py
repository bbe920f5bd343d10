"""Append to bronze with Spark: executors parse, read and write. The lake may be anywhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame

from strandline.bronze.data_files import write_rows
from strandline.bronze.engine import Reader, TransactionId, read_failure
from strandline.bronze.envelope import SCHEMA, Batch
from strandline.bronze.fenced_table import FencedTable
from strandline.bronze.stream_rows import one_file, stream_rows
from strandline.errors import ConfigurationError, RetriableError
from strandline.io.delta_log.append_result import AlreadyAppended, Anchor, Appended, LostRace, WriterEnded
from strandline.io.delta_log.followed_table import FollowedTable
from strandline.io.delta_log.local_folder import LocalFolder
from strandline.io.spark.storage_failures import lake_unavailable
from strandline.io.tables.spark_tables import Tables
from strandline.model.table_schemas import BRONZE_DDL
from strandline.model.tables import TableName

_ATTEMPTS: Final = 100
_PAUSE_SECONDS: Final = 0.5


@dataclass
class SparkEngine:
    """Engine for any place.

    Args:
        id: Id of the table when it was opened.
        looked_up_to: Version of the table. Every later commit is read at least once.
        reads_here: Read the chunks of a snapshot in this process. False: on the executors.
    """

    tables: Tables
    table: TableName
    id: str
    looked_up_to: int = -1
    reads_here: bool = False
    _first_tries: dict[str, tuple[int, int]] = field(default_factory=dict, init=False)
    """By application id: newest sequence, and a version before its first attempt. A commit without answer is later."""
    _anchor: Anchor | None = field(default=None, init=False)
    """The newest commit that was made here."""

    @staticmethod
    def open(tables: Tables, bronze: FencedTable, *, reads_here: bool = False) -> SparkEngine:
        """Return an engine for an opened table. No I/O."""
        return SparkEngine(tables, bronze.table, bronze.id, bronze.version, reads_here)

    def append_batch(self, batch: Batch, once: TransactionId) -> Appended | AlreadyAppended:
        with stream_rows(self.tables.spark, batch) as rows:
            return self._append(rows, once)

    def append_rows(self, rows: pa.Table, once: TransactionId) -> Appended | AlreadyAppended:
        return self._append(one_file(self.tables.spark, rows), once)

    def append_read(self, reader: Reader, once: TransactionId) -> Appended | AlreadyAppended:
        if self.reads_here:
            try:
                rows = pa.Table.from_batches(reader(), SCHEMA)
            except Exception as error:
                raise read_failure(error) from error
            return self.append_rows(rows, once)

        def reading(one: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _ in (
                one
            ):  # a Python worker that leaves a part of its input is ended, and the next chunk would wait for a new one
                yield from reader()

        spark, tag = self.tables.spark, self._reads_tag
        spark.addTag(tag)
        try:
            return self._append(spark.range(0, 1, 1, 1).mapInArrow(reading, BRONZE_DDL), once)
        finally:
            spark.removeTag(tag)

    @property
    def _reads_tag(self) -> str:
        """Tag of the Spark jobs that read chunks."""
        return f"strandline-reads-{self.id}"

    def end_reads(self) -> None:
        """Interrupt the executors' reads. Those of this process end with their connections."""
        self.tables.spark.interruptTag(self._reads_tag)

    def append_beside_writers(self, rows: pa.Table, once: TransactionId) -> Appended | AlreadyAppended:
        for _ in range(_ATTEMPTS):
            outcome = self._try_append(one_file(self.tables.spark, rows), once)
            if not isinstance(outcome, LostRace):
                return outcome
            # The application had not ended before that attempt: otherwise Delta would have skipped it.
            if (result := self._append_natively(rows, once)) is not None:
                return result
            time.sleep(_PAUSE_SECONDS)
        raise RetriableError(
            f"a capture of {self.table} committed between all {_ATTEMPTS} attempts to end its epoch;"
            " nothing was written",
            next_step="end that capture (strandline status names its writer), then repeat the command",
        )

    def _append_natively(self, rows: pa.Table, once: TransactionId) -> Appended | AlreadyAppended | None:
        """Append without Spark, which wins against a busy writer. None: this process cannot write the folder."""
        lake, folder = self.tables.lake, Path(self.tables.lake.path(self.table))
        if not lake.by_path or lake.in_object_store or not (folder / "_delta_log").is_dir():
            return None
        try:
            table = FollowedTable.open(LocalFolder(folder))
        except ConfigurationError:
            return None
        files = [write_rows(table.folder, rows)]
        return table.append_once(files, app_id=once.app_id, sequence=once.sequence, proof=once.proof)

    def _append(self, rows: DataFrame, once: TransactionId) -> Appended | AlreadyAppended:
        while True:
            if not isinstance(outcome := self._try_append(rows, once), LostRace):
                return outcome

    def _try_append(self, rows: DataFrame, once: TransactionId) -> Appended | AlreadyAppended | LostRace:
        """I/O: one attempt to append. Raises LakeUnavailable if the storage failed."""
        sequence, after = self._first_tries.get(once.app_id, (-1, -1))
        if sequence != once.sequence:
            after = self.looked_up_to
            self._first_tries[once.app_id] = (once.sequence, after)
        try:
            if self._is_taken(once):
                return AlreadyAppended()
            outcome = self.tables.append_once(
                self.table,
                rows,
                app_id=once.app_id,
                sequence=once.sequence,
                proof=once.proof,
                after=after,
                anchor=self._anchor,
            )
        except Exception as error:
            raise lake_unavailable(error) or error from error
        if isinstance(outcome, Appended):
            self._check_place(outcome)
            self.looked_up_to = max(self.looked_up_to, outcome.looked_up_to)
            if self._anchor is None or outcome.version > self._anchor.version:
                self._anchor = Anchor(outcome.version, once.proof)
        return outcome

    def _is_taken(self, once: TransactionId) -> bool:
        """I/O: returns True if a commit since the last look took the sequence.

        Delta knows it, too, unless the table has `TRANSACTION_RETENTION`.

        Raises:
            WriterEnded: The log no longer holds all commits since the last look.
        """
        oldest = None
        for commit in self.tables.commits_after(self.table, self.looked_up_to):
            oldest = commit.version
            if once.is_taken_by(commit.user_metadata):
                return True
        if oldest is not None and oldest > self.looked_up_to + 1:
            raise WriterEnded(
                f"{self.table} has commits that this writer has not read and whose log is gone; nothing is lost",
                next_step="strandline capture: it goes on from what the table holds",
            )
        return False

    def _check_place(self, commit: Appended) -> None:
        """Raise WriterEnded if the commit went into another table, or into an older copy of this one.

        The search for the commit's proof also meets the anchor. Without an anchor the table's id is read, which is a
        Spark job: at the first commit, and after log clean-up.
        """
        if not (self.tables.id(self.table) == self.id if commit.anchored is None else commit.anchored):
            raise WriterEnded(
                f"{self.table} no longer holds what this writer committed before; nothing is lost",
                next_step="strandline capture: it goes on from what the table holds",
            )

    def close(self) -> None:
        """Do nothing: the session belongs to the caller."""
