"""The bronze table that a writer opened, and the errors if the writer can no longer commit to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from strandline.bronze.capture_process import WriterProcess, newest_writer
from strandline.bronze.engine import Engine
from strandline.bronze.epoch import BronzeRestored
from strandline.bronze.offsets import committed
from strandline.errors import ContractError, FencedError, LakeUnavailable, StrandlineError
from strandline.io.delta_log.append_result import Appended, WriterEnded
from strandline.io.tables.table_store import TableStore
from strandline.model.tables import TableName

_T = TypeVar("_T")


@dataclass
class FencedTable:
    """The bronze table as a writer opened it. Its id tells it from a table that takes its place.

    Args:
        version: Newest version when the table was opened.
        batch: Newest batch that is known to be in the table.
    """

    tables: TableStore
    table: TableName
    source: str
    id: str
    version: int
    batch: int = 0

    @staticmethod
    def of(tables: TableStore, table: TableName, source: str) -> FencedTable:
        """I/O: reads id and version of an existing table."""
        return FencedTable(tables, table, source, tables.id(table), tables.version(table))

    def guard(self, work: Callable[[], _T]) -> _T:
        """I/O: returns the result of *work*, which commits to the table or reads it.

        Raises:
            BronzeRestored: The table was restored to an older version after it was opened.
            ContractError: The table is gone or was replaced.
        """
        try:
            result = work()
        except Exception as error:
            may_be_gone = isinstance(error, WriterEnded | LakeUnavailable) or not isinstance(error, StrandlineError)
            if may_be_gone and self._is_gone():
                raise self._missing_error() from error
            raise
        if isinstance(result, Appended) and result.restored_at is not None and result.restored_at > self.version:
            raise self._restore_error("while this capture was writing")
        return result

    def refusal(self, what: str, epoch: int, batch: int | None) -> StrandlineError:
        """I/O: returns the error for a commit that Delta skipped.

        Args:
            epoch: Epoch of the writer.
            batch: Number of the batch. None: the commit was outside the stream.
        """
        if self._is_gone():
            return self._missing_error()
        last = committed(self.tables, self.table)
        is_committed = last is not None and (last.epoch > epoch or (batch is not None and last.batch >= batch))
        return self.fencing_error(what) if is_committed else self._restore_error("after it had been written")

    def fencing_error(self, what: str) -> FencedError:
        return FencedError(
            f"another writer committed {what} of source {self.source}{self._rival()}; this one stops, nothing is lost",
            next_step="run one capture per source; strandline status shows the writer",
        )

    def _rival(self) -> str:
        """I/O: returns the process of the newest batch, in parentheses. Empty: it is this one, or nobody knows."""
        try:
            newest = newest_writer(self.tables, self.table, self.batch)
        except Exception:  # noqa: BLE001  # why: the failure that led here is the one to report
            return ""
        process = None if newest is None else WriterProcess.of(newest[0])
        return "" if process is None or process.is_here else f" ({process})"

    def _restore_error(self, when: str) -> BronzeRestored:
        return BronzeRestored(
            f"{self.table} was restored to an older version {when}; nothing is lost",
            next_step="strandline capture: it goes on from where the table is whole",
        )

    def _is_gone(self) -> bool:
        """I/O: returns True if the table is missing or has another id. False if the lake does not answer."""
        try:
            return not self.tables.exists(self.table) or self.tables.id(self.table) != self.id
        except Exception:  # noqa: BLE001  # why: the failure that led here is the one to report
            return False

    def _missing_error(self) -> ContractError:
        lake = self.tables.lake
        back = (
            f"put the old folder back as {lake.path(self.table)}"
            if lake.by_path
            else f"bring the old {lake.sql(self.table)} back"
        )
        return ContractError(
            f"{self.table} is not the table that this capture opened: the old one was moved, removed or replaced;"
            f" it holds the batches up to {self.batch}, and not the events after them",
            next_step=f"{back}, then strandline capture: it goes on from there",
        )


OpenEngine = Callable[[FencedTable], Engine]
"""Function that opens an engine on an existing table. It raises ConfigurationError if the engine cannot write it."""
