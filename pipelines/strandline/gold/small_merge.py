"""MERGE of a few keys into a small gold table, in this process. No Spark job.

Spark computes the rows of the changed keys. Its MERGE of these rows would take longer than their query.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import StructType

from strandline.io.delta_log.merge_memory import HELD_BYTES
from strandline.io.delta_log.mergeable_table import ONLY_SPARK, MergeableTable
from strandline.io.spark.races import OvertakenError
from strandline.io.tables.delta_rs_tables import DeltaRsTables, table_errors
from strandline.model.merge_rule import MergeRule
from strandline.model.tables import TableName

MOST_KEYS: Final = 10_000
"""Changed keys of a small build at most."""
HAS_ROW: Final = "_strandline_has_row"
"""Column of the MERGE's source: true if the key has a row."""


def gold_rule(keys: Sequence[str], columns: Sequence[str]) -> MergeRule:
    """Return the rule of an incremental build: a changed key has its new row, or none.

    Args:
        keys: Columns that identify a row.
        columns: All columns of the table.
    """
    rule = MergeRule(keys).delete(when=f"s.{HAS_ROW} IS NULL").update(columns)
    return rule.insert(columns, when=f"s.{HAS_ROW}")


@dataclass(frozen=True)
class SmallTable:
    """A gold table of at most 256 MiB, not compressed, opened for a merge.

    Args:
        keys: Columns that identify a row, as the table names them.
    """

    table: TableName
    keys: Sequence[str]
    _delta_table: MergeableTable

    @staticmethod
    def open(native: DeltaRsTables, table: TableName, keys: Sequence[str]) -> SmallTable | None:
        """I/O: opens the newest version of *table*. None: Spark must merge.

        Args:
            keys: Columns that identify a row, in small letters.
        """
        with table_errors(table):
            try:
                delta_table = MergeableTable.open(native.folder(table), keys[0])
            except ONLY_SPARK:
                return None
            if delta_table is None or sum(file.size for file in delta_table.files) > HELD_BYTES:
                return None
        names = {name.lower(): name for name in delta_table.schema.names}
        own = [names[key] for key in keys if key in names]
        has_keys = len(own) == len(keys) and all(
            _compares_as_in_spark(delta_table.schema.field(name).type) for name in own
        )
        return SmallTable(table, own, delta_table) if has_keys else None

    @property
    def columns(self) -> StructType:
        """Columns as Spark has them."""
        return StructType.fromJson(json.loads(self._delta_table.schema_text))

    def merge(self, changed: pa.Table, rows: pa.Table) -> int | None:
        """Replace the rows of the *changed* keys by *rows*. A changed key without a row is deleted.

        I/O: reads and writes the table's files; one commit.

        Args:
            changed: Values of the keys, in the order of the keys. Each at most once.
            rows: All rows of these keys. Each key has one row at most.

        Returns:
            Number of rows that changed. None: Spark must merge them. Nothing was changed.

        Raises:
            OvertakenError: Another commit came first. Nothing was changed.
            LakeUnavailable: The lake cannot be read or written.
        """
        names = self._delta_table.schema.names
        with table_errors(self.table):
            try:
                rows = self._delta_table.conformed(rows, names)
                gone = self._delta_table.conformed(self._without(rows, changed.rename_columns(list(self.keys))), names)
                source = pa.concat_tables([_marked(rows, True), _marked(gone, None)])
                merged = self._delta_table.merge(source, gold_rule(self.keys, names), self._delta_table.files)
            except ONLY_SPARK:
                return None
            if merged is None:
                raise OvertakenError(f"another process has changed {self.table}", next_step="strandline gold")
            self._delta_table.tidy()
        return merged.rows

    def _without(self, rows: pa.Table, changed: pa.Table) -> pa.Table:
        """Return the *changed* keys that none of *rows* has."""
        present = set(self._values(rows))
        return changed.filter(pa.array([key not in present for key in self._values(changed)], pa.bool_()))

    def _values(self, rows: pa.Table) -> list[tuple[Any, ...]]:
        """Return the keys of *rows*, with the types of the table."""
        columns = [rows[name].cast(self._delta_table.schema.field(name).type) for name in self.keys]
        return list(zip(*(_numbered(column).to_pylist() for column in columns), strict=True))


def _marked(rows: pa.Table, has_row: bool | None) -> pa.Table:
    return rows.append_column(HAS_ROW, pa.array([has_row] * rows.num_rows, pa.bool_()))


def _numbered(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return dates and times as integers: Python has no year 10000, and Arrow imports pandas for times with a zone."""
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.int64())
    return values.cast(pa.int32()) if pa.types.is_date(values.type) else values


def _compares_as_in_spark(kind: pa.DataType) -> bool:
    """Return True if two values are equal in Python and in DataFusion if and only if they are equal in Spark.

    NaN is equal to NaN in Spark only. Structs and lists may hold it.
    """
    return not (pa.types.is_floating(kind) or pa.types.is_nested(kind))
