"""Quarantine table ``silver.<table>_quarantine``: the failing rows of each suite, as of the version that was checked.

Silver keeps all rows, because its MERGE needs the position of every key. Gold leaves quarantined keys out.
A row is released by the first check that it passes, after a correction of the source, the suite or related data.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline.errors import ContractError
from strandline.io.tables.ddl import schema_of
from strandline.io.tables.spark_tables import Tables
from strandline.model.merge_rule import MergeRule
from strandline.model.quarantine import QUARANTINE_DDL, is_quarantine_of, quarantine_of, quarantine_properties
from strandline.model.table_schemas import BOOKKEEPING
from strandline.model.tables import TableName, literal, literals, quoted


@dataclass(frozen=True)
class Quarantine:
    """Quarantine of one silver table."""

    tables: Tables
    table: TableName

    @property
    def name(self) -> TableName:
        return quarantine_of(self.table)

    def exists(self) -> bool:
        return self.tables.exists(self.name) and is_quarantine_of(self.table, self.tables.properties(self.name))

    def count(self, suite: str | None = None) -> int:
        """Return the number of quarantined rows: of *suite*, or of all suites if None.

        I/O: reads the quarantine table.
        """
        if not self.exists():
            return 0
        rows = self.tables.read(self.name)
        return (rows if suite is None else rows.where(F.col("suite") == suite)).count()

    def keys(self, suite: str) -> DataFrame:
        """Return the ``_key`` of each row quarantined by *suite*. Lazy. The quarantine table must exist."""
        return self.tables.read(self.name).where(F.col("suite") == suite).select("_key")

    def replace_rows(
        self,
        suite: str,
        failing: Mapping[str, Sequence[str]],
        rows: DataFrame,
        *,
        version: int,
        run_id: str,
        at: datetime,
    ) -> None:
        """Replace the quarantined rows of *suite* by the rows in *failing*. All other rows of the suite are released.

        I/O: writes one MERGE; none if the suite has no rows before and after. Idempotent.

        Args:
            suite: Name of the suite.
            failing: Failed expectations by ``_key``.
            rows: Silver table at *version*.
            version: Table version that was checked.
            run_id: Identifier of the quality run.
            at: Time of the quality run, with time zone.

        Raises:
            ContractError: The silver table of a collection has the name of the quarantine table.
        """
        if not failing and not self.count(suite):
            return
        if not self.exists():
            self._create()
        named = [(key, suite, list(reasons), version, at, run_id) for key, reasons in sorted(failing.items())]
        ddl = (
            "_key STRING, suite STRING, reasons ARRAY<STRING>, table_version BIGINT, "
            "quarantined_at TIMESTAMP, run_id STRING"
        )
        new_rows = self.tables.spark.createDataFrame(named, ddl)
        fields = [quoted(name) for name in rows.columns if name not in BOOKKEEPING]
        shown = rows.select(F.col("_key"), F.col("_position"), F.to_json(F.struct(*fields)).alias("row"))
        source = new_rows.join(shown, "_key")  # a key is never null: it is the MERGE key
        renewed = ("reasons", "_position", "table_version", "run_id", "row")
        # Unchanged rows are not written: gold would see them as changes.
        differs = "NOT (t.reasons <=> s.reasons AND t._position <=> s._position)"
        rule = MergeRule(("_key", "suite")).update(renewed, when=differs).insert(source.columns)
        self.tables.merge(self.name, source, rule.delete_missing(when=f"t.suite = {literal(suite)}"))

    def release_other_suites(self, suites: Collection[str]) -> None:
        """Release all rows that are not quarantined by one of *suites*.

        I/O: writes at most one commit. Idempotent.
        """
        orphans = f"suite NOT IN ({literals(suites)})" if suites else "true"
        if self.exists() and not self.tables.read(self.name).where(orphans).isEmpty():
            self.tables.delete(self.name, orphans)

    def _create(self) -> None:
        self.tables.create(
            self.name,
            schema_of(QUARANTINE_DDL),
            properties=quarantine_properties(self.table),
            comment=f"Rows of {self.table} that did not meet a suite; gold leaves them out",
        )
        if not self.exists():
            raise ContractError(
                f"{self.name} is not the quarantine of {self.table}, a collection has that name",
                next_step="set silver.naming: database_collection, so that the two never share a name",
            )
