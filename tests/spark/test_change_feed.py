"""The documented way to follow silver's change feed from Structured Streaming (docs/change-feed.md)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from connect_server import ROOT, connect_server
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from strandline.io.tables.spark_tables import Tables
from strandline.io.tables.table_swap import swap
from strandline.model.tables import Lake, TableName
from strandline.silver.silver_table import SilverTable

PAGE = Path(__file__).parents[2] / "docs" / "change-feed.md"
ORDERS, SHADOW = TableName("silver", "orders"), TableName("control", "rebuild_orders")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


def block(contains: str) -> str:
    (found,) = (one for one in blocks("python") if contains in one)
    return found


def documented(name: str) -> Any:
    found: dict[str, Any] = {}
    exec(block(f"def {name}("), found)
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


def test_a_copy_has_one_row_for_each_document(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(spark, Lake(root=str(tmp_path / "lake")))
    SilverTable(tables, ORDERS).open("shop.orders", "test")
    name, copy, checkpoint = tables.lake.sql(ORDERS), str(tmp_path / "copy"), tmp_path / "checkpoint"
    merge = documented("merge_into")(copy)

    def rows(path: str) -> list[Any]:
        return sorted(map(str, spark.read.format("delta").load(path).collect()))

    def follow() -> None:
        changes = spark.readStream.format("delta").option("readChangeFeed", "true").load(tables.lake.path(ORDERS))
        writer = changes.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(merge)
        writer.trigger(availableNow=True).start().awaitTermination()

    spark.read.format("delta").load(tables.lake.path(ORDERS)).write.format("delta").save(copy)
    columns = "(_key, _position, _op, _deleted)"
    spark.sql(
        f"INSERT INTO {name} {columns} VALUES ('1', '1', 'r', false), ('2', '1', 'r', false), ('3', '1', 'r', false)"
    )
    follow()
    assert len(rows(copy)) == 3
    spark.sql(f"ALTER TABLE {name} ADD COLUMNS (total BIGINT)")
    spark.sql(f"UPDATE {name} SET _op = 'd', _deleted = true, _position = '2' WHERE _key IN ('2', '3')")
    tables.delete(ORDERS, "_key = '2'")  # the purge of a tombstone
    spark.sql(f"INSERT INTO {name} {columns} VALUES ('2', '3', 'c', false)")
    spark.sql(f"UPDATE {name} SET total = 9 WHERE _key = '1'")  # as a rebuild of the key: at the same position
    tables.delete(ORDERS, "_key = '3'")
    for _ in range(2):
        follow()
        assert rows(copy) == rows(tables.lake.path(ORDERS))
        assert len(rows(copy)) == 2
        newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
        newest.unlink()  # as if the process was killed after its MERGE
        newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)


@pytest.mark.long
def test_a_declarative_pipeline_follows_the_feed(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's own `spark-pipelines`: a first run, a purge and a new column, a rebuild, and a new beginning."""
    tables = Tables(spark, Lake(root=str(tmp_path / "lake")))
    for table in (ORDERS, SHADOW):
        SilverTable(tables, table).open(f"shop.{table.name}", "test")
    name = tables.lake.sql(ORDERS)
    flow = block("@dp.append_flow").replace("/data/lake/silver/orders", tables.lake.path(ORDERS))
    flow = flow.replace("/data/changes", str(tmp_path / "changes"))
    spec = blocks("text")[0].replace("file:///data/pipelines/shop", (tmp_path / "storage").as_uri())
    (tmp_path / "changes.py").write_text(flow, encoding="utf-8")
    (tmp_path / "spark-pipeline.yml").write_text(spec, encoding="utf-8")

    def run(remote: str) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).with_name("spark-pipelines")), "run", "--remote", remote]
        env = os.environ | {
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT / "pipelines"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    def follow(remote: str, target: str = "orders") -> DataFrame:
        done = run(remote)
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
        return spark.read.format("delta").load(str(tmp_path / "changes" / target))

    spark.sql(f"INSERT INTO {name} (_key, _op, _deleted) VALUES ('1', 'r', false), ('2', 'r', false)")
    first = [("insert", "1"), ("insert", "2")]
    conf = {"spark.sql.warehouse.dir": str(tmp_path / "warehouse")}
    with connect_server(tmp_path / "server.log", conf=conf) as remote:
        assert told(follow(remote)) == first
        spark.sql(f"UPDATE {name} SET _op = 'd', _deleted = true WHERE _key = '2'")
        tables.delete(ORDERS, "_deleted")  # the purge of a tombstone
        spark.sql(f"ALTER TABLE {name} ADD COLUMNS (total BIGINT)")
        spark.sql(f"INSERT INTO {name} (_key, _op, _deleted, total) VALUES ('3', 'c', false, 9)")
        rows = follow(remote)
        updates = [("update_postimage", "2"), ("update_preimage", "2")]
        assert told(rows) == [("delete", "2"), *first, ("insert", "3"), *updates]
        assert rows.where("total = 9").count() == 1
        swap(tables, ORDERS, SHADOW, properties=tables.properties(ORDERS), cluster_by=("_key",))
        assert run(remote).returncode != 0
        spark.sql(f"INSERT INTO {name} (_key, _op, _deleted) VALUES ('1', 'r', false)")
        anew = flow.replace("orders_changes", "orders_again").replace("changes/orders", "changes/again")
        (tmp_path / "changes.py").write_text(anew, encoding="utf-8")
        assert told(follow(remote, "again")) == first[:1]


def told(changes: DataFrame) -> list[tuple[str, str]]:
    return sorted((row["_change_type"], row["_key"]) for row in changes.collect())
