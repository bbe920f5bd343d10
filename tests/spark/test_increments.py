"""Following a table by its versions, also when Delta has forgotten where one left off."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.io.increments import FeedLost, feed, inserted
from pipelines.io.tables import Tables
from pipelines.model.tables import TableName


# scenario: T05, T07
def test_rows_that_versions_brought_and_all_rows_once_the_log_is_gone(tables: Tables) -> None:
    table = TableName("bronze", "shortened")
    properties = {"delta.enableChangeDataFeed": "true", "delta.checkpointInterval": "3"}
    tables.create(table, tables.spark.range(0).schema, properties=properties)
    for number in range(1, 5):
        tables.append(table, tables.spark.range(number, number + 1, 1, 1))

    def brought(first: int, last: int) -> list[tuple[int, int]]:
        return sorted((row["id"], row["_commit_version"]) for row in inserted(tables, table, first, last).collect())

    assert brought(2, 3) == [(2, 2), (3, 3)]
    for version in range(3):
        (Path(tables.lake.path(table)) / "_delta_log" / f"{version:020d}.json").unlink()
    assert brought(4, 4) == [(4, 4)]
    assert brought(2, 3) == [(1, 3), (2, 3), (3, 3)]
    with pytest.raises(FeedLost, match=r"the log of bronze.shortened no longer goes back to version 1"):
        feed(tables, table, 1, 4)
    with pytest.raises(Exception, match="9") as future:
        feed(tables, table, 9, 9)
    assert not isinstance(future.value, FeedLost)
