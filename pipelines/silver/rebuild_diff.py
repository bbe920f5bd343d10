"""A silver table beside the one that was built anew from bronze: which rows differ. Pure: DataFrame → DataFrame, lazy."""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pipelines.model.position import SNAPSHOT_SUFFIX

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
"""What a row says. The typed columns and `_rescued` are made of `_document`; `_bronze_version` tells which run brought it, and no more."""

_READ: Final = f":{SNAPSHOT_SUFFIX}"


def changed_rows(present: DataFrame, rebuilt: DataFrame, *, purge_watermark: str = "") -> DataFrame:
    """Rows that are not the same in two versions of a table.

    Where the end of a document is told twice, by its event and by a snapshot that no longer met it, it depends on which silver saw first at
    which of the two positions its tombstone stands: that is no difference.

    Args:
        present, rebuilt: Silver tables, whatever their typed columns are; unique by ``_key``.
        floor: Of *present*. Tombstones below it may be there or not.

    Returns:
        ``_key`` and ``kind``: ``missing`` (not in *present*), ``extra`` (only there) or ``different``. Empty where all is equal.
    """
    before, after = present.select("_key", *COMPARED).alias("before"), rebuilt.select("_key", *COMPARED).alias("after")
    is_swept = F.col("before._position").endswith(_READ) | F.col("after._position").endswith(_READ)
    same = {name: F.col(f"before.{name}").eqNullSafe(F.col(f"after.{name}")) for name in COMPARED}
    same["_position"] |= F.coalesce(F.col("before._deleted") & F.col("after._deleted") & is_swept, F.lit(False))
    kind = F.when(F.col("before._key").isNull(), "missing").when(F.col("after._key").isNull(), "extra")
    kind = kind.when(~reduce(Column.__and__, same.values()), "different")
    is_news = ~(_may_be_gone("before", purge_watermark) & _may_be_gone("after", purge_watermark))
    joined = before.join(after, F.col("before._key") == F.col("after._key"), "full").where(is_news)
    return joined.select(F.coalesce("before._key", "after._key").alias("_key"), kind.alias("kind")).where(
        F.col("kind").isNotNull()
    )


def _may_be_gone(side: str, purge_watermark: str) -> Column:
    is_below = F.col(f"{side}._deleted") & (F.col(f"{side}._position") < purge_watermark)
    return F.col(f"{side}._key").isNull() | F.coalesce(is_below, F.lit(False))


def retyped(present: T.StructType, rebuilt: T.StructType) -> list[tuple[str, str, str]]:
    """Columns whose type is another one: name, type before (empty: there was none), type now (empty: there is none)."""
    before = {column.name: column.dataType.simpleString() for column in present}
    after = {column.name: column.dataType.simpleString() for column in rebuilt}
    return [
        (name, before.get(name, ""), after.get(name, ""))
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    ]
