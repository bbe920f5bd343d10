"""Differences between a silver table and its rebuild from bronze. Pure: DataFrame → DataFrame, lazy."""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from strandline.model.position import SNAPSHOT_SUFFIX

COMPARED: Final = (
    "_position",
    "_base_position",
    "_op",
    "_deleted",
    "_collection_uuid",
    "_exact",
    "_pending",
    "_document",
)
"""Compared columns. Typed columns and `_rescued` derive from `_document`; `_bronze_version` only says which run merged
the row."""

_SNAPSHOT_ROW: Final = f":{SNAPSHOT_SUFFIX}"


def changed_rows(present: DataFrame, rebuilt: DataFrame, *, purge_watermark: str = "") -> DataFrame:
    """Return the rows that differ between a table and its rebuild.

    A deletion may be known from its event and from a sweep. The tombstone's position then depends on which one silver
    saw first. Such a difference in position is ignored.

    Args:
        present, rebuilt: Silver tables with any typed columns; unique by ``_key``.
        purge_watermark: Purge watermark of *present*. Tombstones below it may be on one side only.

    Returns:
        ``_key`` and ``kind``: ``missing`` (not in *present*), ``extra`` (only in *present*) or ``different``. Empty if
        all is equal.
    """
    before, after = present.select("_key", *COMPARED).alias("before"), rebuilt.select("_key", *COMPARED).alias("after")
    is_swept = F.col("before._position").endswith(_SNAPSHOT_ROW) | F.col("after._position").endswith(_SNAPSHOT_ROW)
    same = {name: F.col(f"before.{name}").eqNullSafe(F.col(f"after.{name}")) for name in COMPARED}
    same["_position"] |= F.coalesce(F.col("before._deleted") & F.col("after._deleted") & is_swept, F.lit(False))
    kind = F.when(F.col("before._key").isNull(), "missing").when(F.col("after._key").isNull(), "extra")
    kind = kind.when(~reduce(Column.__and__, same.values()), "different")
    is_expected = ~(_may_be_gone("before", purge_watermark) & _may_be_gone("after", purge_watermark))
    joined = before.join(after, F.col("before._key") == F.col("after._key"), "full").where(is_expected)
    return joined.select(F.coalesce("before._key", "after._key").alias("_key"), kind.alias("kind")).where(
        F.col("kind").isNotNull()
    )


def _may_be_gone(side: str, purge_watermark: str) -> Column:
    is_below = F.col(f"{side}._deleted") & (F.col(f"{side}._position") < purge_watermark)
    return F.col(f"{side}._key").isNull() | F.coalesce(is_below, F.lit(False))


def retyped(present: T.StructType, rebuilt: T.StructType) -> list[tuple[str, str, str]]:
    """Return the columns whose type changed: name, type before, type now.

    An empty type means that the column does not exist.
    """
    before = {column.name: column.dataType.simpleString() for column in present}
    after = {column.name: column.dataType.simpleString() for column in rebuilt}
    return [
        (name, before.get(name, ""), after.get(name, ""))
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    ]
