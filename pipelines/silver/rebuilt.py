"""A silver table beside the one that was built anew from bronze: which rows differ. Pure: DataFrame → DataFrame, lazy."""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

COMPARED: Final = ("_position", "_base_position", "_op", "_deleted", "_collection_uuid", "_exact", "_pending", "_document")
"""What a row says. The typed columns and `_rescued` are made of `_document`; `_bronze_version` tells which run brought it, and no more."""


def changed_rows(present: DataFrame, rebuilt: DataFrame) -> DataFrame:
    """Rows that are not the same in two versions of a table.

    Args:
        present, rebuilt: Silver tables, whatever their typed columns are; unique by ``_key``.

    Returns:
        ``_key`` and ``kind``: ``missing`` (not in *present*), ``extra`` (only there) or ``different``. Empty where all is equal.
    """
    before, after = present.select("_key", *COMPARED).alias("before"), rebuilt.select("_key", *COMPARED).alias("after")
    equal = reduce(Column.__and__, (F.col(f"before.{name}").eqNullSafe(F.col(f"after.{name}")) for name in COMPARED))
    kind = F.when(F.col("before._key").isNull(), "missing").when(F.col("after._key").isNull(), "extra").when(~equal, "different")
    joined = before.join(after, F.col("before._key") == F.col("after._key"), "full")
    return joined.select(F.coalesce("before._key", "after._key").alias("_key"), kind.alias("kind")).where(F.col("kind").isNotNull())


def retyped(present: T.StructType, rebuilt: T.StructType) -> list[tuple[str, str, str]]:
    """Columns whose type is another one: name, type before (empty: there was none), type now (empty: there is none)."""
    before = {column.name: column.dataType.simpleString() for column in present}
    after = {column.name: column.dataType.simpleString() for column in rebuilt}
    return [(name, before.get(name, ""), after.get(name, "")) for name in {**before, **after} if before.get(name) != after.get(name)]
