"""The documented way to follow silver's change feed from Structured Streaming (docs/change-feed.md)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from lakehouse import land, pipeline, purge, with_silver
from pymongo.database import Database
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from pipelines.jobs.offsets.life_cycle import set_desired_state
from pipelines.jobs.silver.rebuild import run_rebuild

PAGE = Path(__file__).parents[2] / "docs" / "change-feed.md"


def documented() -> dict[str, Any]:
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        exec(block, names)
    return names


# scenario: S07
def test_a_follower_has_every_change_once(
    spark: SparkSession, mongo_uri: str, database: Database[dict[str, Any]], tmp_path: Path
) -> None:
    ctx = with_silver(pipeline(spark, mongo_uri, database.name, tmp_path / "lake"), compatibility="portable")
    table, target, checkpoint = (str(tmp_path / name) for name in ("lake/silver/a", "target", "checkpoint"))
    follow = documented()["follow"]

    def changes() -> list[tuple[Any, ...]]:
        rows: DataFrame = spark.read.format("delta").load(target)
        return sorted(tuple(row) for row in rows.select("_change_type", "_key", "v", "_deleted").collect())

    database.a.insert_many([{"_id": number, "v": 0} for number in range(3)])
    land(ctx)
    follow(spark, table, target, checkpoint)
    first = [("insert", str(number), 0, False) for number in range(3)]
    assert changes() == first, "the query begins with the rows that are there"
    database.a.update_one({"_id": 0}, {"$set": {"v": 1}})
    database.a.delete_one({"_id": 1})
    land(ctx)
    follow(spark, table, target, checkpoint)
    (Path(checkpoint) / "commits" / "1").unlink()  # as if the query was killed after its write
    (Path(checkpoint) / "commits" / ".1.crc").unlink(missing_ok=True)
    follow(spark, table, target, checkpoint)
    second = [
        ("update_postimage", "0", 1, False),
        ("update_postimage", "1", 0, True),
        ("update_preimage", "0", 0, False),
        ("update_preimage", "1", 0, False),
    ]
    assert changes() == first + second
    assert (purge(ctx), purge(ctx)) == (0, 1)
    follow(spark, table, target, checkpoint)
    assert changes() == [("delete", "1", 0, True), *first, *second]

    database.a.insert_one({"_id": 9, "v": 1, "new": 1})
    land(ctx)
    with pytest.raises(StreamingQueryException) as added:
        follow(spark, table, target, checkpoint)
    print("ADDED", added.value)  # noqa: T201
    follow(spark, table, target, checkpoint)
    assert ("insert", "9", 1, False) in changes()

    set_desired_state(ctx, "stopped", by="ops", why="a rebuild")
    run_rebuild(ctx, "silver.a")
    set_desired_state(ctx, "running", by="ops", why=None)
    for _ in range(2):
        with pytest.raises(StreamingQueryException) as rebuilt:
            follow(spark, table, target, checkpoint)
        print("REBUILT", rebuilt.value)  # noqa: T201
    follow(spark, table, target + "2", checkpoint + "2")
    assert spark.read.format("delta").load(target + "2").count() == 3
