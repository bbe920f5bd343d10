"""Constraints that a user put on a silver or history table, and rows that break one. Pure, lazy.

Delta refuses a whole MERGE for one such row. So the document of the row is left out, as if its event had been too
large, and the rest is merged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from strandline.model.tables import quoted, quoted_path
from strandline.silver.fold.step import OVERSIZE
from strandline.silver.latest import PENDING_TYPE

_CHECK: Final = "delta.constraints."
_LENGTH: Final = "__CHAR_VARCHAR_TYPE_STRING"
"""Key of a column's metadata: Spark reads the column as STRING."""
_DEFAULT: Final = "CURRENT_DEFAULT"
_BROKEN: Final = "_strandline_broken"
"""Column with the name of the first constraint that a row breaks; null: none."""
_STORED_PREFIX: Final = "_strandline_stored"
"""Beginning of the names of columns that the row has in the table."""


@dataclass(frozen=True)
class CheckedRows:
    """Rows to merge, held against the constraints of their table."""

    letters: DataFrame
    """Documents that break a constraint: ``key``, ``position``, ``message``, ``raw``."""
    accepted: DataFrame
    """Rows that the table accepts. The documents in *letters* are left out of them."""
    refused: DataFrame
    """Rows that the table would not accept as new rows, even without their document."""


@dataclass(frozen=True)
class Constraints:
    """Conditions that every row of a table must meet: SQL by name. A row breaks one that is false or null."""

    conditions: Mapping[str, str]

    @staticmethod
    def of(properties: Mapping[str, str], schema: T.StructType) -> Constraints:
        """Return the constraints of a table: CHECK, NOT NULL, and the lengths of CHAR and VARCHAR columns."""
        checks = {name[len(_CHECK) :]: sql for name, sql in properties.items() if name.casefold().startswith(_CHECK)}
        return Constraints({**checks, **dict(_not_null(schema)), **dict(_lengths(schema))})

    def broken(self) -> Column:
        """Return a column: the name of the first constraint that a row breaks; null: none."""
        breaks = [F.when(~F.coalesce(F.expr(sql), F.lit(False)), F.lit(name)) for name, sql in self.conditions.items()]
        return F.coalesce(*breaks, F.lit(None).cast("STRING"))

    def all_met(self) -> str:
        """Return SQL: true if a row meets all conditions, false otherwise."""
        return " AND ".join(f"coalesce({sql}, false)" for sql in self.conditions.values()) or "true"

    def letters(self, rows: DataFrame, position: str) -> DataFrame:
        """Return the documents of *rows* that break a constraint: ``key``, ``position``, ``message``, ``raw``."""
        checked = rows.withColumn(_BROKEN, self.broken())
        return checked.where(F.col(_BROKEN).isNotNull() & F.col("_document").isNotNull()).select(
            F.col("_key").alias("key"),
            F.col(position).alias("position"),
            F.concat(F.lit("a constraint of the table refuses it: "), F.col(_BROKEN)).alias("message"),
            F.col("_document").alias("raw"),
        )

    def refuse_empty_rows(self, table: DataFrame) -> bool:
        """Return True if *table* may have no row without values. I/O: a job over one row."""
        empty = [F.lit(None).cast(column.dataType).alias(column.name) for column in table.schema.fields]
        row = table.sparkSession.range(1).select(*empty)
        return bool(self.conditions) and not row.where(self.broken().isNotNull()).isEmpty()

    def check(
        self,
        rows: DataFrame,
        current: DataFrame,
        *,
        identity: Sequence[str],
        position: str,
        cleared: Mapping[str, Column],
    ) -> CheckedRows:
        """Hold *rows* against the constraints.

        Args:
            rows: Rows to merge into *current*.
            current: The table. A column that only it has keeps its value in a merged row.
            identity: Columns that identify a row of the table.
            position: Column with the position of the document.
            cleared: Values of columns of a row whose document is left out.
        """
        whole = _with_all_columns(rows, current, identity)
        checked = whole.withColumn(_BROKEN, self.broken())
        is_left_out = F.col(_BROKEN).isNotNull() & F.col("_document").isNotNull()
        values = {name: F.when(is_left_out, value).otherwise(F.col(quoted(name))) for name, value in cleared.items()}
        again = checked.withColumns(values).withColumn(_BROKEN, self.broken())
        is_accepted = F.col(_BROKEN).isNull()
        columns = [quoted(name) for name in rows.columns]
        accepted, refused = (again.where(chosen).select(*columns) for chosen in (is_accepted, ~is_accepted))
        return CheckedRows(self.letters(whole, position), accepted, refused)


def without_document(rows: DataFrame, document: Sequence[str]) -> dict[str, Column]:
    """Return null for the columns *document* of a row whose document is left out."""
    return {name: F.lit(None).cast(rows.schema[name].dataType) for name in document}


def waiting() -> dict[str, Column]:
    """Return the columns of a silver row whose document is left out: the row waits for a newer document.

    A document that is older than the stored one makes no row wait.
    """
    is_newer = F.col("_base_position") > F.coalesce(F.col(f"{_STORED_PREFIX}_base_position"), F.lit(""))
    missing = F.array(F.struct(F.col("_base_position").alias("position"), F.lit(None).cast("BINARY").alias("patch")))
    later = F.coalesce(F.col("_pending"), F.array().cast(PENDING_TYPE))
    return {
        "_pending": F.when(is_newer, F.concat(missing.cast(PENDING_TYPE), later)).otherwise(F.col("_pending")),
        "_exact": F.when(is_newer, F.lit(False)),
        "_inexact_because": F.when(is_newer, F.lit(OVERSIZE)),
    }


def _not_null(schema: T.StructType, above: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    for column in schema.fields:
        path = (*above, column.name)
        if not column.nullable:
            within = f"{quoted_path(above)} IS NULL OR " if above else ""
            yield f"NOT NULL of {'.'.join(path)}", f"{within}{quoted_path(path)} IS NOT NULL"
        if isinstance(column.dataType, T.StructType):
            yield from _not_null(column.dataType, path)


def _lengths(schema: T.StructType) -> Iterator[tuple[str, str]]:
    for column in schema.fields:
        if kind := re.fullmatch(r"(?:var)?char\((\d+)\)", column.metadata.get(_LENGTH, "")):
            name = quoted(column.name)
            yield f"{kind[0]} of {column.name}", f"{name} IS NULL OR length({name}) <= {kind[1]}"


def _with_all_columns(rows: DataFrame, current: DataFrame, identity: Sequence[str]) -> DataFrame:
    """Return *rows* with the columns that only *current* has: its values, or the defaults of a new row."""
    present = {name.lower() for name in rows.columns}
    others = [column for column in current.schema.fields if column.name.lower() not in present]
    own_columns = [*identity, *(name for name in ("_base_position",) if name in current.columns)]
    own = current.select(
        *(F.col(name).alias(f"{_STORED_PREFIX}{name}") for name in own_columns),
        *(F.col(quoted(column.name)) for column in others),
    )
    same = [F.col(name).eqNullSafe(F.col(f"{_STORED_PREFIX}{name}")) for name in identity]
    joined = rows.join(own, reduce(Column.__and__, same), "left")
    is_new = F.col(f"{_STORED_PREFIX}{identity[0]}").isNull()
    defaults = {column.name: column.metadata[_DEFAULT] for column in others if _DEFAULT in column.metadata}
    return joined.withColumns(
        {name: F.when(is_new, F.expr(sql)).otherwise(F.col(quoted(name))) for name, sql in defaults.items()}
    )
