"""A history table: every version of every document of a collection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline.model.lives import Lives
from strandline.model.merge_rule import Merged, MergeRule
from strandline.model.namespaces import Namespace
from strandline.model.shape import Compatibility, Shape
from strandline.model.table_schemas import HISTORY_ACTION, SILVER_HISTORY_DDL
from strandline.model.tables import literal
from strandline.silver.compatibility import compatibility_in
from strandline.silver.history.changes import reaches
from strandline.silver.incarnations import Facts, end_position, facts_in
from strandline.silver.owned_table import HISTORY_OWNER, shape_in
from strandline.silver.progress import Progress
from strandline.silver.schema.evolution import with_columns_of
from strandline.silver.typed_table import TypedTable

_WINDOW: Final = ("_valid_to_position", "_valid_to", "_confirmed")


@dataclass(frozen=True)
class HistoryState:
    """Metadata read from a history table's properties."""

    shape: Shape
    progress: Progress | None
    facts: Facts
    compatibility: Compatibility


@dataclass(frozen=True)
class HistoryTable(TypedTable):
    """Read and write ``silver.<collection>_history``.

    The table is clustered by the end of the versions, so that a MERGE skips files of ended versions.
    """

    def open(self, namespace: str, source: str, compatibility: Compatibility = "portable") -> HistoryState:
        """Create the empty table if it does not exist, and read its metadata.

        I/O: reads table properties; writes at most one table. Idempotent.

        Args:
            compatibility: Compatibility of a new table. An existing table keeps its own.

        Raises:
            ContractError: The table has another owner, for example a collection whose name ends in ``_history``.
        """
        table_properties = self.create(
            SILVER_HISTORY_DDL,
            self.owner_of(namespace),
            source,
            compatibility,
            cluster_by=("_valid_to_position", "_key"),
            skipping=("_valid_to_position", "_valid_from", "_valid_to"),
        )
        facts, progress = facts_in(table_properties, Namespace.parse(namespace)), Progress.stored_in(table_properties)
        return HistoryState(shape_in(table_properties), progress, facts, compatibility_in(table_properties))

    @staticmethod
    def owner_of(namespace: str) -> str:
        """Return the owner that the collection's history table stores (`TypedTable.owner`)."""
        return f"{HISTORY_OWNER}{namespace}"

    def _next_step_when_shared(self) -> str:
        return "set silver.history_collections, or silver.naming, so that no history has a collection's table name"

    def align_columns(self, shape: Shape, silver: Shape) -> Shape:
        """Add and widen columns to match the silver table.

        I/O: see `change_schema`; no commit if the columns match already.

        Args:
            shape: Stored shape of the history table.
            silver: Shape of the silver table.

        Returns:
            New shape of the history table. Columns that the silver table no longer has stay.
        """
        compatibility = compatibility_in(self.tables.properties(self.name))
        following, changes = with_columns_of(shape, silver.as_in(compatibility))
        if changes:
            self.change_schema(following, changes, before=shape)
        return following

    def merge(self, changes: DataFrame, *, since: str) -> Merged:
        """MERGE *changes* into the table.

        I/O: reads the versions that may change; writes one commit. Idempotent.

        Args:
            changes: Output of `history_changes`; unique by ``_key`` and ``_position``.
            since: Position below which no changed version ended. Empty: no limit.

        Raises:
            ContractError: See `require`.
        """
        columns = [name for name in changes.columns if name != HISTORY_ACTION]
        self.require(columns)
        can_change = reaches("t._valid_to_position", literal(since))
        action = f"s.{HISTORY_ACTION}"
        rule = MergeRule(("_key", "_position"))
        rule = rule.delete(when=f"{action} = 'remove'").update(_WINDOW, when=f"{action} = 'window'")
        rule = rule.update(columns).insert(columns, when=f"{action} = 'write'")
        return self.tables.merge(self.name, changes, rule, among=can_change)

    def versions_since(self, position: str) -> DataFrame:
        """Return the versions in force at *position* or later. Empty position: all versions.

        I/O: reads the table; files with only older versions are skipped.
        """
        return self.tables.read(self.name).where(reaches("_valid_to_position", literal(position)))

    def ended_versions(self, lives: Lives, among: str = "true") -> DataFrame:
        """Return the versions that were in force when their life ended, with that position as ``end``.

        Versions of which only a pre-image is known are left out. I/O: reads the table.

        Args:
            among: SQL: true for the rows of the collection.
        """
        is_known = F.col("_captured_at").isNotNull() & (F.col("_op") != "b")
        ending = self.tables.read(self.name).where(among).where(is_known).withColumn("end", F.expr(end_position(lives)))
        return ending.where(F.coalesce(F.col("_valid_to_position") > F.col("end"), F.col("end").isNotNull()))
