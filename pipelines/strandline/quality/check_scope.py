"""Rows that a suite has to check: all, or only rows changed since its last conclusive run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline.io.tables.increments import FeedLost, feed, require_readable
from strandline.io.tables.spark_tables import Tables
from strandline.model.table_schemas import QUALITY
from strandline.quality.quarantine import Quarantine
from strandline.quality.rules import Suite

ScopeKind = Literal["all", "changed", "quarantined"]


@dataclass(frozen=True)
class CheckScope:
    """Rows to check, from one version of a table."""

    rows: DataFrame
    table_id: str
    version: int
    kind: ScopeKind
    version_from: int | None = None
    """Rows changed after this version are checked. None: all rows are checked."""


def check_scope(tables: Tables, suite: Suite, table_id: str, version: int, *, replay: bool = False) -> CheckScope:
    """Return the rows that *suite* has to check, after its ``where`` condition.

    Changed rows are found by table version, not by position: a READ can arrive late with an old position.
    Rows in quarantine are always included. All rows are checked if the suite sets ``rows: all``, if it has no earlier
    conclusive run, if the rows which that run put into quarantine were released without a check, or if the change data
    feed cannot be read.

    I/O: reads ``control.quality`` and the change data feed; writes nothing.

    Args:
        replay: True: check only the rows in quarantine.
    """
    rows = tables.read(suite.table, version=version)
    rows = rows.where(suite.where) if suite.where else rows
    since = _last_conclusive_version(tables, suite, table_id) if suite.rows == "changed" else None
    all_rows = CheckScope(rows, table_id, version, "all")
    if since is None or since > version:
        return all_rows
    try:
        keys = _changed_keys(tables, suite, since, version, replay=replay)
    except (PySparkException, FeedLost):  # feed disabled, expired, vacuumed, or spans a schema change
        return all_rows
    matches = F.col("t._key").eqNullSafe(F.col("k._key"))
    changed = rows.alias("t").join(keys.distinct().alias("k"), matches, "left_semi")
    return CheckScope(changed, table_id, version, "quarantined" if replay else "changed", since)


def _changed_keys(tables: Tables, suite: Suite, since: int, version: int, *, replay: bool) -> DataFrame:
    keys = tables.read(suite.table, version=version).select("_key").limit(0)
    if since < version and not replay:
        keys = feed(tables, suite.table, since + 1, version).select("_key")
    quarantine = Quarantine(tables, suite.table)
    keys = keys.unionByName(quarantine.keys(suite.name)) if quarantine.exists() else keys
    require_readable(keys, f"the changed keys of {suite.table}")
    return keys


def _last_conclusive_version(tables: Tables, suite: Suite, table_id: str) -> int | None:
    """Return the newest table version that the suite, unchanged since then, has checked conclusively.

    A run is conclusive if no check broke and no blocking check failed: rows that failed then are in quarantine or only
    caused a warning. None: there is no such version, so all rows have to be checked.
    """
    if not tables.exists(QUALITY):
        return None
    recorded = tables.read(QUALITY)
    conclusive = F.col("success") | ((F.col("outcome") == "failed") & (F.col("on_failure") != "block"))
    mine = (F.col("suite") == suite.name) & (F.col("table_id") == table_id) & F.col("scope").isin("all", "changed")
    same = F.bool_and(F.col("suite_hash") == suite.fingerprint).alias("same")
    quarantined = F.bool_or((F.col("outcome") == "failed") & (F.col("on_failure") == "quarantine")).alias("quarantined")
    runs = (
        recorded.where(mine)
        .groupBy("run_id", "ran_at")
        .agg(F.min("table_version").alias("version"), F.bool_and(conclusive).alias("conclusive"), same, quarantined)
    )
    last_different = runs.agg(F.max(F.when(~F.col("same"), F.col("ran_at")))).first()
    # A run of a different version of the suite released the rows that this version had put into quarantine.
    if last_different is not None and last_different[0] is not None:
        runs = runs.where(F.col("ran_at") > F.lit(last_different[0]))
    row = runs.where("conclusive AND same").agg(F.max("version"), F.max_by("quarantined", "ran_at")).first()
    if row is None or row[0] is None:
        return None
    # A configuration without this suite released its rows, or somebody deleted them: no check has passed them.
    was_emptied = row[1] and not Quarantine(tables, suite.table).count(suite.name)
    return None if was_emptied else int(row[0])
