"""Differences between a silver table and its rebuild from bronze: one rule, in the SQL of both engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline.model.position import SNAPSHOT_SUFFIX
from strandline.model.query import DATAFUSION, SPARK, Dialect

_TEXTS: Final = (
    "_base_position",
    "_op",
    "_collection_uuid",
    "CAST(_exact AS STRING)",
    "md5(_document)",
)
"""Compared texts. Typed columns and `_rescued` derive from `_document`; `_bronze_version` only says which run merged
the row."""
_DIGEST: Final = ", ".join(f"coalesce({text}, '-')" for text in _TEXTS)
_ROW: Final = ("_key", "_position", "_deleted", "_pending", f"md5(concat_ws(' ', {_DIGEST})) AS digest")
"""Columns of a row that are compared. Documents are too large to be joined."""
_ON: Final = "present._key = rebuilt._key"


@dataclass(frozen=True)
class Differences:
    """Numbers of rows. Rows include tombstones, except tombstones below the purge watermark."""

    rows: int
    """Rows of the rebuilt table."""
    missing: int
    """Rows that only the rebuilt table has."""
    extra: int
    """Rows that only the present table has."""
    different: int
    """Rows with the same key and other content."""


def differences_by_spark(present: DataFrame, rebuilt: DataFrame, purge_watermark: str) -> Differences:
    """Compare a table with its rebuild. I/O: reads both. See `differences_sql`."""
    sides = (rows.selectExpr(*_ROW).alias(name) for rows, name in ((present, "present"), (rebuilt, "rebuilt")))
    joined = next(sides).join(next(sides), F.expr(_ON), "full").where(_is_expected(SPARK, purge_watermark))
    (row,) = joined.selectExpr(*_counts(SPARK, purge_watermark)).collect()
    return Differences(**row.asDict())


def differences_sql(purge_watermark: str) -> str:
    """Return the query, in SQL of DataFusion, whose one row has the values of `Differences`.

    A deletion may be known from its event and from a sweep. The tombstone's position then depends on which one silver
    saw first. Such a difference in position is ignored.

    Args:
        purge_watermark: Purge watermark of the present table. Tombstones below it may be on one side only.
    """
    sides = (f"{name} AS (SELECT {', '.join(_ROW)} FROM {name}_table)" for name in ("present", "rebuilt"))
    counts, is_expected = _counts(DATAFUSION, purge_watermark), _is_expected(DATAFUSION, purge_watermark)
    joined = f"present FULL JOIN rebuilt ON {_ON} WHERE {is_expected}"
    return f"WITH {', '.join(sides)} SELECT {', '.join(counts)} FROM {joined}"


def _counts(dialect: Dialect, purge_watermark: str) -> list[str]:
    is_swept = " OR ".join(f"{side}._position LIKE '%:{SNAPSHOT_SUFFIX}'" for side in ("present", "rebuilt"))
    both_deleted = f"coalesce(present._deleted AND rebuilt._deleted AND ({is_swept}), FALSE)"
    same = f"present.digest = rebuilt.digest AND {_same('_deleted')} AND {_same('_pending')}"
    same += f" AND ({_same('_position')} OR {both_deleted})"
    counted = {
        "rows": f"NOT {_may_be_gone('rebuilt', dialect, purge_watermark)}",
        "missing": "present._key IS NULL",
        "extra": "rebuilt._key IS NULL",
        "different": f"{_ON} AND NOT ({same})",
    }
    return [f"count(CASE WHEN {condition} THEN 1 END) AS {name}" for name, condition in counted.items()]


def _same(column: str) -> str:
    return f"(present.{column} IS NOT DISTINCT FROM rebuilt.{column})"


def _is_expected(dialect: Dialect, purge_watermark: str) -> str:
    """Return a condition: false for a row that is gone, or may be gone, on both sides."""
    gone = (_may_be_gone(side, dialect, purge_watermark) for side in ("present", "rebuilt"))
    return f"NOT ({' AND '.join(gone)})"


def _may_be_gone(side: str, dialect: Dialect, purge_watermark: str) -> str:
    is_below = f"{side}._deleted AND {side}._position < {dialect.text(purge_watermark)}"
    return f"({side}._key IS NULL OR coalesce({is_below}, FALSE))"


def retyped(before: Mapping[str, str], after: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return the columns whose type changed: name, type before, type now.

    An empty type means that the column does not exist.

    Args:
        before, after: Types of the columns, by name.
    """
    return [
        (name, before.get(name, ""), after.get(name, ""))
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    ]
