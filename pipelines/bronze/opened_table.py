"""The bronze table that a writer opened, and the reasons why the writer cannot commit to it any more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pipelines.bronze.lineage import BronzeRestored
from pipelines.bronze.offsets import committed
from pipelines.errors import ContractError, FencedError, StrandlineError
from pipelines.io.append_result import Appended, WriterEnded
from pipelines.io.tables import Tables
from pipelines.model.tables import TableName

_T = TypeVar("_T")


@dataclass
class OpenedTable:
    """One table, by its id.

    Args:
        version: The newest when it was opened.
        batch: The newest that is known to be in it.
    """

    tables: Tables
    table: TableName
    source: str
    id: str
    version: int
    batch: int = 0

    @staticmethod
    def of(tables: Tables, table: TableName, source: str) -> OpenedTable:
        """I/O: for a table that is there."""
        return OpenedTable(tables, table, source, tables.id(table), tables.version(table))

    def guarded(self, work: Callable[[], _T]) -> _T:
        """I/O: the outcome of *work*, which commits to the table or looks at it.

        Raises:
            BronzeRestored: The table was restored to an older version since it was opened.
            ContractError: The table is gone, or another one has its place.
        """
        try:
            landed = work()
        except Exception as error:
            if (isinstance(error, WriterEnded) or not isinstance(error, StrandlineError)) and self._is_gone():
                raise self._gone() from error
            raise
        if isinstance(landed, Appended) and landed.restored_at is not None and landed.restored_at > self.version:
            raise self._restored("while this capture was writing")
        return landed

    def refusal(self, what: str, lineage: int, batch: int | None) -> StrandlineError:
        """I/O: the error that tells why Delta skipped a commit.

        Args:
            lineage: Of the writer that made the commit.
            batch: None: it was no batch of the stream.
        """
        if self._is_gone():
            return self._gone()
        last = committed(self.tables, self.table)
        is_committed = last is not None and (last.lineage > lineage or (batch is not None and last.batch >= batch))
        return self.fenced(what) if is_committed else self._restored("after it had been written")

    def fenced(self, what: str) -> FencedError:
        return FencedError(
            f"another writer committed {what} of source {self.source}; this one stops, nothing is lost",
            next_step="run one capture per source; strandline status shows the writer",
        )

    def _restored(self, when: str) -> BronzeRestored:
        return BronzeRestored(
            f"{self.table} was restored to an older version {when}; nothing is lost",
            next_step="strandline capture: it goes on from where the table is whole",
        )

    def _is_gone(self) -> bool:
        """I/O: whether there is no table, or another one. False where the lake does not answer."""
        try:
            return not self.tables.exists(self.table) or self.tables.id(self.table) != self.id
        except Exception:  # noqa: BLE001  # why: of whatever class; the failure that led here is the one to tell
            return False

    def _gone(self) -> ContractError:
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
