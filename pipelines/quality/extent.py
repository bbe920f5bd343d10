"""Which rows of a table a suite has to look at: all, or those that changed since it was last settled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.io.increments import FeedLost, feed, require_readable
from pipelines.io.tables import Tables
from pipelines.model.table_schemas import QUALITY
from pipelines.quality.quarantine import Quarantine
from pipelines.quality.rules import Suite

Scope = Literal["all", "changed", "quarantined"]


@dataclass(frozen=True)
class Extent:
    """Rows of one version of a table."""

    rows: DataFrame
    table_id: str
    version: int
    scope: Scope
    version_from: int | None = None
    """Exclusive; None where all rows are looked at."""


def extent_of(tables: Tables, suite: Suite, table_id: str, version: int, *, replay: bool = False) -> Extent:
    """Rows for *suite*, its condition applied.

    Changes are told by versions of the table and not by positions: a READ that arrives late brings an old position. Rows in quarantine
    are always among them.

    I/O: reads ``control.quality`` for the version at which the same suite was last settled, and the change feed from there on; where the
    feed cannot be read, or a suite compares rows with each other, all rows.

    Args:
        replay: Only the rows in quarantine.
    """
    rows = tables.read(suite.table, version=version)
    rows = rows.where(suite.where) if suite.where else rows
    settled = _settled(tables, suite, table_id) if suite.rows == "changed" else None
    whole = Extent(rows, table_id, version, "all")
    if settled is None or settled > version:
        return whole
    try:
        keys = _changed_keys(tables, suite, settled, version, replay=replay)
    except (
        PySparkException,
        FeedLost,
    ):  # switched off, ended, vacuumed, crossed by a change of columns: reading all rows is right
        return whole
    matches = F.col("t._key").eqNullSafe(F.col("k._key"))
    some = rows.alias("t").join(keys.distinct().alias("k"), matches, "left_semi")
    return Extent(some, table_id, version, "quarantined" if replay else "changed", settled)


def _changed_keys(tables: Tables, suite: Suite, settled: int, version: int, *, replay: bool) -> DataFrame:
    keys = tables.read(suite.table, version=version).select("_key").limit(0)
    if settled < version and not replay:
        keys = feed(tables, suite.table, settled + 1, version).select("_key")
    quarantine = Quarantine(tables, suite.table)
    keys = keys.unionByName(quarantine.keys(suite.name)) if quarantine.exists() else keys
    require_readable(keys, f"the changed keys of {suite.table}")
    return keys


def _settled(tables: Tables, suite: Suite, table_id: str) -> int | None:
    """The newest version of which the suite, as it is now, has told all: what failed then did not hold gold, or is held itself."""
    if not tables.exists(QUALITY):
        return None
    known = tables.read(QUALITY)
    if "suite_hash" not in known.columns:
        return None
    told = F.col("success") | ((F.col("outcome") == "failed") & (F.col("on_failure") != "block"))
    mine = (F.col("suite") == suite.name) & (F.col("table_id") == table_id) & F.col("scope").isin("all", "changed")
    same = F.bool_and(F.col("suite_hash") == suite.fingerprint).alias("same")
    runs = (
        known.where(mine)
        .groupBy("run_id", "ran_at")
        .agg(F.min("table_version").alias("version"), F.bool_and(told).alias("told"), same)
    )
    otherwise = runs.agg(F.max(F.when(~F.col("same"), F.col("ran_at")))).first()
    if (
        otherwise is not None and otherwise[0] is not None
    ):  # what the suite held before it was another one was let go then
        runs = runs.where(F.col("ran_at") > F.lit(otherwise[0]))
    row = runs.where("told AND same").agg(F.max("version")).first()
    return None if row is None or row[0] is None else int(row[0])
