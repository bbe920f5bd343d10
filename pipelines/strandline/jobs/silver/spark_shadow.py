"""A shadow table that is compared and swapped in by Spark."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline.errors import ContractError
from strandline.io.tables.table_swap import swap
from strandline.jobs.context import JobContext
from strandline.jobs.silver.constrained import ConstrainedTable
from strandline.jobs.table_protocol import lower_protocol
from strandline.model.namespaces import Namespace
from strandline.model.tables import TableName, quoted
from strandline.silver.compatibility import MAPPED, compatibility_in, is_mapped_in, without_features
from strandline.silver.layout_properties import clustering_in
from strandline.silver.rebuild_diff import Differences, differences_by_spark
from strandline.silver.silver_table import SilverTable


@dataclass(frozen=True)
class RowFilter:
    """Rows to rebuild. Every row is rebuilt from all its changes."""

    keys: tuple[str, ...] = ()
    """Values of ``_key``; empty: all keys."""
    since: str = ""
    """Position: rows without a change at or above it are left out; empty: no limit."""

    @property
    def is_all(self) -> bool:
        """True if the whole table is rebuilt."""
        return not self.keys and not self.since

    def apply(self, changes: DataFrame) -> DataFrame:
        """Return all bronze rows of the selected keys."""
        if self.is_all:
            return changes
        if self.keys:
            return changes.where(F.col("key").isin(*self.keys))
        touched = changes.where(F.col("position") >= self.since).select("key").distinct()
        return changes.join(touched, "key", "left_semi")

    def present(self, rows: DataFrame, rebuilt: DataFrame) -> DataFrame:
        """Return the *rows* of the present table that were rebuilt."""
        if self.keys:
            return rows.where(F.col("_key").isin(*self.keys))
        return rows.join(rebuilt.select("_key"), "_key", "left_semi") if self.since else rows


@dataclass(frozen=True)
class SparkShadow:
    """Implements `Shadow`.

    Args:
        changes: Bronze rows of which the shadow was made.
    """

    ctx: JobContext
    namespace: Namespace
    existing: SilverTable
    shadow: TableName
    changes: DataFrame
    row_filter: RowFilter

    def lacking_keys(self) -> int:
        keys, rows = self.changes.select("key").distinct(), self.ctx.tables.read(self.shadow).select("_key")
        return keys.join(rows, F.col("key").eqNullSafe(F.col("_key")), "left_anti").count()

    def leave_out_refused(self, *, records: bool) -> None:
        """See `Shadow`. The shadow has no constraint itself.

        Raises:
            ContractError: A constraint names a column that the shadow lacks.
        """
        existing, tables = self.existing, self.ctx.tables
        constraints, rows = existing.constraints(), tables.read(self.shadow)
        for name, sql in constraints.conditions.items():
            try:
                _ = rows.selectExpr(sql).schema
            except AnalysisException:
                raise ContractError(
                    f"the constraint {name} of {existing.name} does not fit the columns of the rebuilt table",
                    next_step=f"ALTER TABLE {existing.name} DROP CONSTRAINT {quoted(name)}",
                ) from None
        if constraints.conditions:
            if records:
                ConstrainedTable(self.ctx, self.namespace, existing, constraints).record_broken(rows)
            tables.delete(self.shadow, f"NOT ({constraints.all_met()})")

    def differences(self) -> Differences:
        present, rebuilt = self.ctx.tables.read(self.existing.name), self.ctx.tables.read(self.shadow)
        present = self.row_filter.present(present, rebuilt)
        return differences_by_spark(present, rebuilt, self.existing.purge_watermark())

    def replace_table(self) -> None:
        tables, table = self.ctx.tables, self.existing.name
        properties = without_features(tables.properties(table)) | tables.properties(self.shadow)
        is_portable = compatibility_in(properties) == "portable"
        features = MAPPED if is_portable and is_mapped_in(properties) else {}
        columns = clustering_in(properties)
        swap(tables, table, self.shadow, properties=properties, cluster_by=columns, features=features)
        if is_portable:
            lower_protocol(self.ctx, table)
