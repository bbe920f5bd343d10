"""Merge a large batch in two MERGEs: one for inserted keys, one for keys that were only changed.

A batch of keys that the table lacks, such as a first load, needs only the first: no row is shuffled.

A single MERGE with inserts cannot broadcast the batch, so every column of the table is shuffled. Separate MERGEs avoid
this. The MERGE of inserts reads only the table's keys. The MERGE of changes broadcasts the batch. A single MERGE is as
good or better only if the batch changes most of the rows between its smallest and largest key, as with recent keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from strandline.io.spark import column_functions as F
from strandline.model.lives import ONE_LIFE, Lives
from strandline.model.merge_rule import NOTHING, Merged
from strandline.model.table_schemas import CHANGE_OPS
from strandline.silver.key_filter import Keys
from strandline.silver.latest import contains_insert
from strandline.silver.merge_rule import Deletes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from strandline.silver.silver_table import SilverTable

BROADCAST_BYTES: Final = 256 * 1024 * 1024
"""Maximum bytes of broadcast rows, over all tables that are merged at the same time. The broadcast takes over twice as
much memory."""
_ROW_BYTES: Final = 512
"""Estimated bytes of a row without its document: positions with resume tokens, UUID, timestamps."""

MIN_KEYS_FOR_SPLIT: Final = 10_000
"""Minimum keys of a batch that is split. Below it, the second commit takes longer than it saves, except for a very
large table."""


MAX_DENSE_ROWS_PER_CHANGE: Final = 2
"""Maximum table rows per change, between a batch's smallest and largest key, for a single MERGE. With so few rows, one
MERGE shuffles little and all tasks write. A broadcast MERGE would write with a single task if the rows are in one
file."""


@dataclass(frozen=True)
class MergePart:
    """One part of a split batch."""

    inserted: bool | None
    """True: keys whose changes contain an insert. False: all other keys. None: all keys; the table lacks them."""
    keys: Keys
    count: int
    """Number of keys."""


def count_between(between: DataFrame, changes: int) -> int:
    """Return the number of table rows between a batch's smallest and largest key. No more are counted than matter.

    I/O: one job over some keys of the table; writes nothing.

    Args:
        between: Rows of the table whose keys lie in the range of the batch's keys.
        changes: Number of changes in the batch.
    """
    return between.select("_key").limit(MAX_DENSE_ROWS_PER_CHANGE * changes + 1).count()


def is_dense(rows_between: int, changes: int) -> bool:
    """Return True if a batch changes most of the rows between its smallest and largest key."""
    return changes // 2 <= rows_between <= MAX_DENSE_ROWS_PER_CHANGE * changes


def split_changes(changes: DataFrame, *, columns: int, tables_at_once: int) -> list[MergePart]:
    """Split a batch into one or two parts.

    I/O: one job over *changes*; writes nothing.

    Args:
        changes: Bronze rows without READs (`Keys.is_stream_only`).
        columns: Number of columns of the silver table.
        tables_at_once: Number of tables that are merged at the same time. They share `BROADCAST_BYTES`.

    Returns:
        Parts, inserted keys first. Empty: use a single MERGE, because the changed rows are too large for a broadcast,
        or because the batch is too small for two commits.
    """
    document = F.max(F.coalesce("document_size", F.lit(0)))  # counted twice: raw BSON and typed columns
    size = 2 * document + F.octet_length("key") + _ROW_BYTES + 8 * columns
    by_key = (
        changes.where(F.col("op").isin(*CHANGE_OPS))
        .groupBy("key")
        .agg(contains_insert().alias("inserted"), size.alias("size"))
    )
    totals = (
        F.min("key").alias("low"),
        F.max("key").alias("high"),
        F.count("*").alias("count"),
        F.sum("size").alias("size"),
    )
    rows = sorted(
        by_key.groupBy("inserted").agg(*totals).collect(), key=lambda row: bool(row["inserted"]), reverse=True
    )
    if any(not row["inserted"] and row["size"] > BROADCAST_BYTES // tables_at_once for row in rows):
        return []
    if len(rows) == 2 and sum(row["count"] for row in rows) < MIN_KEYS_FOR_SPLIT:
        return []
    return [MergePart(row["inserted"], Keys(bounds=(row["low"], row["high"])), row["count"]) for row in rows]


def merge_in_parts(
    table: SilverTable,
    parts: Sequence[MergePart],
    state: DataFrame,
    typed: Callable[[DataFrame], DataFrame],
    *,
    deletes: Deletes,
    lives: Lives = ONE_LIFE,
) -> Merged:
    """Merge *state* in the given *parts*.

    A part that merged fewer rows than expected is merged again in full. It holds a row that does not match the part: an
    insert of a key that the table has, or a change of a key that the table lacks or holds at a newer position.

    I/O: one commit for each part, and one more for each part that is merged again. Idempotent.

    Args:
        parts: Output of `split_changes`.
        state: Output of `latest_per_key`; unique by ``_key``.
        typed: Function that turns such rows into input of `SilverTable.merge`.
        deletes, lives: See `SilverTable.merge`.
    """
    counts = NOTHING
    for part in parts:
        rows = typed(state if part.inserted is None else state.where(F.col("inserted") == part.inserted))
        if part.inserted is False:
            merged = table.update(rows, keys=part.keys, deletes=deletes, lives=lives)
        else:
            merged = table.insert(rows, keys=part.keys)
        if merged.rows != part.count:
            merged = merged + table.merge(rows, keys=part.keys, deletes=deletes, lives=lives)
        counts = counts + merged
    return counts
