"""Incremental reads by table version, also after Delta has cleaned up the last version that was read."""

from __future__ import annotations

from pathlib import Path

import pytest
from idle_lake import idle_copy

from strandline.io.tables.increments import FeedLost, feed, is_readable, rows_appended
from strandline.io.tables.spark_tables import Tables
from strandline.io.tables.table_store import VersionGone
from strandline.io.tables.versions import with_fresh_versions
from strandline.model.tables import Lake, TableName


# scenario: T05, T07
def test_rows_that_versions_brought_and_all_rows_once_the_log_is_gone(tables: Tables) -> None:
    table = TableName("bronze", "shortened")
    properties = {"delta.enableChangeDataFeed": "true", "delta.checkpointInterval": "3"}
    tables.create(table, tables.spark.range(0).schema, properties=properties)
    for number in range(1, 5):
        tables.append(table, tables.spark.range(number, number + 1, 1, 1))

    def brought(first: int, last: int) -> list[tuple[int, int]]:
        return sorted(
            (row["id"], row["_commit_version"]) for row in rows_appended(tables, table, first, last).collect()
        )

    assert brought(2, 3) == [(2, 2), (3, 3)]
    for version in range(3):
        (Path(tables.lake.path(table)) / "_delta_log" / f"{version:020d}.json").unlink()
    assert brought(4, 4) == [(4, 4)]
    assert brought(2, 3) == [(1, 3), (2, 3), (3, 3)]
    with pytest.raises(FeedLost, match=r"the changes of bronze.shortened from version 1 on cannot be read"):
        feed(tables, table, 1, 4)


def appended(tables: Tables) -> TableName:
    """Return a table that got one row in each of its versions 1 to 4."""
    table = TableName("bronze", "appended")
    tables.create(table, tables.spark.range(0).schema, properties={"delta.enableChangeDataFeed": "true"})
    for number in range(1, 5):
        tables.append(table, tables.spark.range(number, number + 1, 1, 1))
    return table


def test_changes_older_than_delta_shows_are_all_rows(tables: Tables, tmp_path: Path) -> None:
    appended(tables)
    table, idle = TableName("bronze", "appended"), Tables(tables.spark, Lake(root=str(tmp_path / "idle")))
    idle_copy(Path(tables.lake.root or ""), tmp_path / "idle", days=8)
    assert rows_appended(idle, table, 4, 4).select("id").collect() == [(4,)], "the newest version is shown at any age"
    with pytest.raises(FeedLost, match="DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION"):
        feed(idle, table, 2, 4)
    assert sorted(map(tuple, rows_appended(idle, table, 2, 4).collect())) == [(number, 4) for number in range(1, 5)]
    assert is_readable(idle, table, 4)
    assert not is_readable(idle, table, 3)

    # somebody commits while version 4 is read
    chosen: list[int] = []

    def read() -> int:
        chosen.append(idle.version(table))
        if len(chosen) == 1:
            idle.append(table, idle.spark.range(5, 6))
        return rows_appended(idle, table, 2, chosen[-1]).count()

    assert (with_fresh_versions(read), chosen) == (5, [4, 5])
    with pytest.raises(
        VersionGone, match=r"version 4 of bronze.appended cannot be read: .* → run the same command again"
    ) as gone:
        rows_appended(idle, table, 2, 4)
    assert gone.value.exit_code == 75


def test_changes_whose_files_were_removed_by_hand_are_all_rows(tables: Tables) -> None:
    table = appended(tables)
    assert rows_appended(tables, table, 2, 4).count() == 3
    check = "spark.databricks.delta.retentionDurationCheck.enabled"
    tables.spark.conf.set(check, "false")
    try:
        for done in ("OPTIMIZE {}", "VACUUM {} RETAIN 0 HOURS"):
            tables.spark.sql(done.format(tables.lake.sql(table)))
    finally:
        tables.spark.conf.unset(check)
    assert not is_readable(tables, table, 4)
    newest = tables.version(table)
    assert sorted(map(tuple, rows_appended(tables, table, 2, newest).collect())) == [
        (number, newest) for number in range(1, 5)
    ]
