"""The documented way to follow silver's change feed from Structured Streaming (docs/change-feed.md)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pipelines.io.table_swap import swap
from pipelines.io.tables import Tables
from pipelines.model.tables import Lake, TableName
from pipelines.silver.silver_table import SilverTable

PAGE = Path(__file__).parents[2] / "docs" / "change-feed.md"
ORDERS, SHADOW = TableName("silver", "orders"), TableName("control", "rebuild_orders")


def documented(name: str) -> Any:
    found: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[0], found)
    return found[name]


@pytest.mark.long
def test_a_follower_has_every_change_once(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(spark, Lake(root=str(tmp_path / "lake")))
    for table in (ORDERS, SHADOW):
        SilverTable(tables, table).open(f"shop.{table.name}", "test")
    name, target, checkpoint = tables.lake.sql(ORDERS), str(tmp_path / "target"), tmp_path / "checkpoint"

    def follow() -> list[tuple[Any, ...]]:
        documented("follow")(spark, tables.lake.path(ORDERS), target, str(checkpoint))
        rows = spark.read.format("delta").load(target).select("_change_type", "_key", "_op", "_deleted")
        return sorted(tuple(row) for row in rows.collect())

    spark.sql(f"INSERT INTO {name} (_key, _op, _deleted) VALUES ('1', 'r', false), ('2', 'r', false)")
    first = [("insert", "1", "r", False), ("insert", "2", "r", False)]
    assert follow() == first, "the query begins with the rows that are there"
    spark.sql(f"UPDATE {name} SET _op = 'd', _deleted = true WHERE _key = '2'")
    tables.delete(ORDERS, "_deleted")  # the purge of a tombstone
    second = [
        ("delete", "2", "d", True),
        *first,
        ("update_postimage", "2", "d", True),
        ("update_preimage", "2", "r", False),
    ]
    assert follow() == second
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    newest.unlink()  # as if the process was killed after its write
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    assert follow() == second, "Delta skips the repeated write"

    spark.sql(f"ALTER TABLE {name} ADD COLUMNS (total BIGINT)")
    spark.sql(f"INSERT INTO {name} (_key, _op, _deleted, total) VALUES ('3', 'c', false, 9)")
    assert ("insert", "3", "c", False) in follow()

    swap(tables, ORDERS, SHADOW, properties=tables.properties(ORDERS), cluster_by=("_key",))
    for _ in range(2):
        with pytest.raises(StreamingQueryException):
            follow()
