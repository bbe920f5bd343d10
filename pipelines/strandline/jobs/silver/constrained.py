"""MERGE into silver and history tables with constraints of the user. What breaks one becomes a dead letter."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline.jobs.context import JobContext
from strandline.jobs.silver.undecodable import record_letters
from strandline.model.lives import Lives
from strandline.model.merge_rule import Merged
from strandline.model.namespaces import Namespace
from strandline.model.shape import Shape
from strandline.model.table_schemas import HISTORY_ACTION
from strandline.silver.constraints import Constraints, waiting, without_document
from strandline.silver.history.table import HistoryTable
from strandline.silver.key_filter import Keys
from strandline.silver.merge_rule import Deletes
from strandline.silver.silver_table import SilverTable
from strandline.silver.typed_table import TypedTable

_log = logging.getLogger("strandline.silver")


@dataclass(frozen=True)
class ConstrainedTable:
    """A silver or history table with constraints."""

    ctx: JobContext
    namespace: Namespace
    table: TypedTable
    constraints: Constraints

    def merge(self, rows: DataFrame, shape: Shape, *, keys: Keys, deletes: Deletes, lives: Lives) -> Merged:
        """MERGE *rows* as `SilverTable.merge` does, without the documents that break a constraint.

        A stored row keeps its document then, and waits for a newer one. A new key gets a row only if the constraints
        accept a row without values.

        I/O: one job for the dead letters; their commit; up to two commits to the table.
        """
        table = self.table
        assert isinstance(table, SilverTable)
        document = [*(name for name, _ in shape.columns()), "_base_position", "_rescued", "_document"]
        checked = self.constraints.check(
            rows,
            self.ctx.tables.read(table.name).where(keys.predicate("_key")),
            identity=("_key",),
            position="_base_position",
            cleared=without_document(rows, document) | waiting(),
        )
        if self._record(checked.letters):
            table.mark_has_patches()
        merged = table.merge(checked.accepted, keys=keys, deletes=deletes, lives=lives)
        return merged + table.merge_refused(checked.refused, keys=keys, deletes=deletes, lives=lives)

    def merge_history(self, changes: DataFrame, shape: Shape, *, since: str) -> Merged:
        """MERGE *changes* as `HistoryTable.merge` does, without the documents that break a constraint.

        A version whose document is left out is stored without values if the constraints accept it. Otherwise no version
        begins where the one before ends.

        I/O: one job for the dead letters; their commit; one commit to the table.
        """
        table = self.table
        assert isinstance(table, HistoryTable)
        is_written = F.col(HISTORY_ACTION) == "write"
        document = [*(name for name, _ in shape.columns()), "_exact", "_rescued", "_document"]
        checked = self.constraints.check(
            changes.where(is_written),
            self.ctx.tables.read(table.name),
            identity=("_key", "_position"),
            position="_position",
            cleared=without_document(changes, document),
        )
        self._record(checked.letters)
        return table.merge(changes.where(~is_written).unionByName(checked.accepted), since=since)

    def record_broken(self, rows: DataFrame) -> None:
        """I/O: writes a dead letter for each document of silver *rows* that breaks a constraint. Idempotent."""
        self._record(self.constraints.letters(rows, "_base_position"))

    def _record(self, letters: DataFrame) -> int:
        """I/O: writes the dead letters. Returns their number."""
        count = letters.count()
        if count:
            record_letters(self.ctx, self.namespace, letters, "ConstraintBroken")
            _log.warning(
                "%d documents of %s break a constraint of %s: strandline dead-letters list shows them",
                count,
                self.namespace,
                self.table.name,
            )
        return count
