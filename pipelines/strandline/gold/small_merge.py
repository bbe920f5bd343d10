"""MERGE of a few keys into a gold table's files, in this process and in one commit. No Spark job.

Spark computes the rows of the changed keys. Its MERGE of these rows would take longer than their query.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import StructType

from strandline.io.delta_log.changeable_table import MOST_BYTES, ONLY_SPARK, ChangeableTable, TableChange, change_feed
from strandline.io.delta_log.parquet_file import conformed
from strandline.io.spark.conflicts import OvertakenError
from strandline.io.tables.delta_rs_tables import DeltaRsTables, table_errors
from strandline.io.tables.merge import Merged, merge_metrics
from strandline.model.tables import TableName

MOST_KEYS: Final = 10_000
"""Changed keys of a small build at most."""


@dataclass(frozen=True)
class SmallTable:
    """A gold table of at most 64 MiB, not compressed, opened for a merge.

    Args:
        keys: Columns that identify a row, as the table names them.
    """

    table: TableName
    keys: Sequence[str]
    _stored: ChangeableTable

    @staticmethod
    def open(here: DeltaRsTables, table: TableName, keys: Sequence[str]) -> SmallTable | None:
        """I/O: opens the newest version of *table*. None: Spark must merge.

        Args:
            keys: Columns that identify a row, in small letters.
        """
        with table_errors(table):
            try:
                stored = ChangeableTable.open(here.folder(table), keys[0])
            except ONLY_SPARK:
                return None
            if stored is None or sum(file.size for file in stored.files) > MOST_BYTES:
                return None
        names = {name.lower(): name for name in stored.schema.names}
        own = [names[key] for key in keys if key in names]
        has_keys = len(own) == len(keys) and all(_compares_as_in_spark(stored.schema.field(name).type) for name in own)
        return SmallTable(table, own, stored) if has_keys else None

    @property
    def columns(self) -> StructType:
        """Columns as Spark has them."""
        return StructType.fromJson(json.loads(self._stored.schema_text))

    def merge(self, changed: pa.Table, rows: pa.Table, properties: Mapping[str, str]) -> int | None:
        """Replace the rows of the *changed* keys by *rows*, and set table *properties*, in one commit.

        A changed key without a row is deleted.

        I/O: reads and writes the table's files.

        Args:
            changed: Values of the keys, in the order of the keys. Each at most once.
            rows: All rows of these keys. Each key has one row at most.

        Returns:
            Number of rows that changed. None: Spark must merge them. Nothing was changed.

        Raises:
            OvertakenError: Another commit came first. Nothing was changed.
            LakeUnavailable: The lake cannot be read or written.
        """
        with table_errors(self.table):
            try:
                counts, change = self._change(changed, conformed(rows, self._stored.schema), properties)
                is_committed = self._stored.commit(change)
            except ONLY_SPARK:
                return None
            if not is_committed:
                raise OvertakenError(f"another process has changed {self.table}", next_step="strandline gold")
        return counts.rows

    def _change(self, changed: pa.Table, new: pa.Table, properties: Mapping[str, str]) -> tuple[Merged, TableChange]:
        """I/O: reads all files. Returns the numbers of changed rows, and the change."""
        keys, new_keys = set(self._values(changed, changed.schema.names)), self._values(new, self.keys)
        places = {key: number for number, key in enumerate(new_keys)}
        small_files = self._stored.small_files()
        replaced, kept, before, gone, present = [], [], [], [], set()
        for file in self._stored.files:
            rows = self._stored.read(file)
            found = self._values(rows, self.keys)
            if keys.isdisjoint(found) and file not in small_files:
                continue
            replaced.append(file)
            present |= keys.intersection(found)
            kept.append(rows.filter(pa.array([key not in keys for key in found])))
            before.append(rows.filter(pa.array([key in keys and key in places for key in found])))
            gone.append(rows.filter(pa.array([key in keys and key not in places for key in found])))
        after, added = (
            new.take(pa.array([number for key, number in places.items() if (key in present) == is_update], pa.int64()))
            for is_update in (True, False)
        )
        counts = Merged(added.num_rows, after.num_rows, sum(rows.num_rows for rows in gone))
        if not counts.rows:
            return counts, TableChange(properties=properties)
        rows = pa.concat_tables([*kept, after, added])
        feed = change_feed({"update_preimage": before, "update_postimage": [after], "insert": [added], "delete": gone})
        metrics = merge_metrics(counts, rows.num_rows)
        return counts, TableChange(
            replaced, rows if rows.num_rows else None, feed if replaced else None, properties, metrics
        )

    def _values(self, rows: pa.Table, names: Sequence[str]) -> list[tuple[Any, ...]]:
        """Return the keys of *rows*, with the types of the table."""
        kinds = [self._stored.schema.field(key).type for key in self.keys]
        columns = [rows[name].cast(kind) for name, kind in zip(names, kinds, strict=True)]
        return list(zip(*(_numbered(each).to_pylist() for each in columns), strict=True))


def _numbered(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return dates and times as integers: Python has no year 10000, and Arrow imports pandas for times with a zone."""
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.int64())
    return values.cast(pa.int32()) if pa.types.is_date(values.type) else values


def _compares_as_in_spark(kind: pa.DataType) -> bool:
    """Return True if two values are equal in Python if and only if they are equal in Spark.

    NaN is equal to NaN in Spark only. Structs and lists may hold it.
    """
    return not (pa.types.is_floating(kind) or pa.types.is_nested(kind))
