"""A large batch in two MERGEs: of what it inserted, and of what it only changed.

One MERGE of both sends every column of the table through a shuffle, because a row that may be new keeps the smaller side, the batch, from
being sent to every task instead. An insert need only be held against the table's keys, and what was there already can be looked up where
the table is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.io.merge import Merged
from pipelines.model.columns import CHANGE_OPS
from pipelines.silver.keys import Keys
from pipelines.silver.latest import was_inserted
from pipelines.silver.writer import Deletes, SilverTable

BROADCAST_BYTES: Final = 128 * 1024 * 1024
"""Of documents in the halves that every task gets, of all tables that are merged at once. As rows, and on their way, they take some five
times as much."""

WORTH_TWO: Final = 10_000
"""Keys. With fewer of them on both sides a second commit takes longer than it saves, but for a very large table."""


@dataclass(frozen=True)
class Half:
    """The keys of a batch whose changes hold an insert (*inserted*), or none."""

    inserted: bool
    keys: Keys
    count: int
    document_bytes: int
    """At most."""


def halves_of(changes: DataFrame, *, tables_at_once: int) -> list[Half]:
    """I/O: one job over the keys of bronze rows. At most two; none where a READ is among the changes, which may be new or not, where a key
    is null, where what was only changed is too large for a broadcast, or where two commits are not worth it."""
    size = F.max(F.coalesce("document_size", F.lit(0))).alias("size")
    by_key = changes.where(F.col("op").isin(*CHANGE_OPS)).groupBy("key").agg(was_inserted().alias("inserted"), size, _is_unsure())
    bounds = F.min("key").alias("low"), F.max("key").alias("high")
    found = by_key.groupBy("inserted").agg(
        *bounds, F.count("*").alias("count"), F.sum("size").alias("size"), F.max("unsure").alias("unsure")
    )
    rows = found.collect()
    halves = [Half(row["inserted"], Keys(bounds=(row["low"], row["high"])), row["count"], row["size"]) for row in rows]
    too_large = any(not half.inserted and half.document_bytes > BROADCAST_BYTES // tables_at_once for half in halves)
    too_small = len(halves) == 2 and sum(half.count for half in halves) < WORTH_TWO
    unsure = any(row["unsure"] for row in rows)
    return [] if too_large or too_small or unsure else sorted(halves, key=lambda half: half.inserted, reverse=True)


def _is_unsure() -> Column:
    return F.max((F.col("op") == "r") | F.col("key").isNull()).alias("unsure")


def merge_by_halves(
    table: SilverTable, halves: Sequence[Half], state: DataFrame, typed: Callable[[DataFrame], DataFrame], *, deletes: Deletes
) -> Merged | None:
    """I/O: one commit for each of *halves*. Idempotent, as the MERGE of all of them is.

    Args:
        state: As `latest_per_key` returns it; unique by ``_key``.
        typed: Makes of such rows those that `SilverTable.merge` takes.

    Returns:
        None: some rows were not what their half says (an insert that the table has, or a change of what it lacks, as in a batch that is
        repeated). What is done is done, and a MERGE of the whole batch does the rest.
    """
    done = Merged(0, 0, 0)
    for half in halves:
        rows = typed(state.where(F.col("inserted") == half.inserted))
        merged = table.insert(rows, keys=half.keys) if half.inserted else table.update(rows, keys=half.keys, deletes=deletes)
        if merged.rows < half.count:
            return None
        done = done + merged
    return done
