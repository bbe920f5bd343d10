"""A large batch in two MERGEs: of what it inserted, and of what it only changed.

One MERGE of both sends every column of the table through a shuffle, because a row that may be new keeps the smaller side, the batch, from
being sent to every task instead. An insert need only be held against the table's keys, and what was there already can be looked up where
the table is read. Only where the batch changes most of what it meets (recent keys, as a rule) is one MERGE as good, or better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.io.merge import Merged
from pipelines.model.table_schemas import CHANGE_OPS
from pipelines.silver.key_filter import Keys
from pipelines.silver.latest import was_inserted
from pipelines.silver.silver_table import Deletes, SilverTable

BROADCAST_BYTES: Final = 256 * 1024 * 1024
"""Of rows that every task gets, by all tables that are merged at once. On their way they take more than twice as much."""
_BYTES_OF_A_ROW: Final = 512
"""Without its document: positions, of which each holds a token, UUID, times."""

MIN_KEYS_FOR_SPLIT: Final = 10_000
"""Keys. With fewer of them, of both halves together, a second commit takes longer than it saves, but for a very large table."""


DENSE: Final = 2
"""Rows of the table between a batch's smallest and largest key, for each change. Of so few one MERGE shuffles little, and all tasks share
in the writing; if the batch is sent to where they are read, the one task writes that finds them in one file."""


@dataclass(frozen=True)
class MergePart:
    """The keys of a batch whose changes hold an insert (*inserted*), or none."""

    inserted: bool
    keys: Keys
    count: int


def are_dense(between: DataFrame, changes: int) -> bool:
    """I/O: one job over some keys of the table. Whether a batch changes most of the rows that its MERGE meets.

    Args:
        between: Rows of the table whose keys are between the batch's.
        changes: How many the batch has.
    """
    held = between.select("_key").limit(DENSE * changes + 1).count()
    return changes // 2 <= held <= DENSE * changes


def split_changes(changes: DataFrame, *, columns: int, tables_at_once: int) -> list[MergePart]:
    """I/O: one job over the keys of bronze rows. One half, or two; none where what was only changed is too large for a broadcast, or where
    two commits are not worth it.

    Args:
        changes: All of the stream (`Keys.are_streamed`).
        columns: Of the table.
    """
    document = F.max(F.coalesce("document_size", F.lit(0)))  # twice: as it is, and in columns
    size = 2 * document + F.octet_length("key") + _BYTES_OF_A_ROW + 8 * columns
    by_key = (
        changes.where(F.col("op").isin(*CHANGE_OPS))
        .groupBy("key")
        .agg(was_inserted().alias("inserted"), size.alias("size"))
    )
    told = (
        F.min("key").alias("low"),
        F.max("key").alias("high"),
        F.count("*").alias("count"),
        F.sum("size").alias("size"),
    )
    rows = sorted(by_key.groupBy("inserted").agg(*told).collect(), key=lambda row: bool(row["inserted"]), reverse=True)
    if any(not row["inserted"] and row["size"] > BROADCAST_BYTES // tables_at_once for row in rows):
        return []
    if len(rows) == 2 and sum(row["count"] for row in rows) < MIN_KEYS_FOR_SPLIT:
        return []
    return [MergePart(row["inserted"], Keys(bounds=(row["low"], row["high"])), row["count"]) for row in rows]


def split_merge(
    table: SilverTable,
    merge_parts: Sequence[MergePart],
    state: DataFrame,
    typed: Callable[[DataFrame], DataFrame],
    *,
    deletes: Deletes,
) -> Merged:
    """I/O: one commit for each of *halves*, and one more for each that holds a row which is not what its half says: an insert of what the
    table has, a change of what it lacks or has newer. Idempotent, as the MERGE of all of them is.

    Args:
        state: As `latest_per_key` returns it; unique by ``_key``.
        typed: Makes of such rows those that `SilverTable.merge` takes.
    """
    done = Merged(0, 0, 0)
    for half in merge_parts:
        rows = typed(state.where(F.col("inserted") == half.inserted))
        merged = (
            table.insert(rows, keys=half.keys) if half.inserted else table.update(rows, keys=half.keys, deletes=deletes)
        )
        if merged.rows != half.count:
            merged = merged + table.merge(rows, keys=half.keys, deletes=deletes)
        done = done + merged
    return done
