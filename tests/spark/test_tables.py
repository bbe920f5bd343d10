"""Tables of a lake, under the hands of several writers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from tenacity import stop_after_attempt, stop_after_delay, stop_all

from strandline.control.notifications import Notifications
from strandline.errors import ConfigurationError
from strandline.io.delta_log.append_result import Appended
from strandline.io.delta_log.commits import Commit, LogFolder
from strandline.io.delta_log.local_folder import LocalFolder
from strandline.io.tables.ddl import schema_of
from strandline.io.tables.file_maintenance import SparkFiles
from strandline.io.tables.spark_tables import Tables
from strandline.model.merge_rule import Merged, MergeRule
from strandline.model.table_schemas import NOTIFICATIONS
from strandline.model.tables import Lake, TableName, literal, quoted

BY_NAME = {"delta.columnMapping.mode": "name"}


@pytest.mark.parametrize(
    "seconds", [10, 0]
)  # 0: a machine so slow that the first attempt alone takes all the time there is
def test_a_table_that_many_create_at_once_is_created_once(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    monkeypatch.setattr(
        "strandline.io.tables.table_creation._CREATION_ENDS", stop_all(stop_after_delay(seconds), stop_after_attempt(5))
    )
    schema = schema_of("a INT")
    for number in range(4):
        table = TableName("control", f"t{number}")
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _, name=table: tables.create(name, schema, cluster_by=("a",)), range(4)))
        assert tables.version(table) == 0


def test_spark_compacts_small_files_only(tables: Tables) -> None:
    """A changed row of a portable table writes its file anew. Delta's default is a file of 1 GiB."""
    table = TableName("silver", "large")
    tables.create(table, schema_of("content BINARY"))
    for count in (20, 20, 1, 1):  # MB that cannot be compressed
        tables.append_rows(table, pa.table({"content": [os.urandom(1 << 20) for _ in range(count)]}))
    files = SparkFiles(tables, table)
    assert files.compact() == (3, 1), "the small ones, and one of the others"
    assert (files.compact(), files.count()) == ((0, 0), 2)


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_creation_that_was_cut_off_before_its_first_commit_is_done_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setattr("strandline.io.tables.table_creation._CREATION_ENDS", stop_after_attempt(2))
    table = TableName("control", "half")
    tables = Tables(spark, Lake(root=f"{scheme}{tmp_path}"))
    log = tmp_path / "control" / "half" / "_delta_log"
    log.mkdir(parents=True)
    (log / ".00000000000000000000.json.6f2c.tmp").write_text("{")
    tables.create(table, schema_of("a INT"))
    assert tables.version(table) == 0


@pytest.mark.parametrize("scheme", ["", "file://"])
@pytest.mark.parametrize("name", ["cat.jpg", ".cat.jpg", "_cats/cat.jpg", "_delta_log/cat.jpg"])
def test_a_folder_of_other_things_is_one_clear_line(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, scheme: str
) -> None:
    monkeypatch.setattr("strandline.io.tables.table_creation._CREATION_ENDS", stop_after_attempt(2))
    tables = Tables(spark, Lake(root=f"{scheme}{tmp_path}"))
    folder = tmp_path / "control" / "photos"
    (folder / "_delta_log").mkdir(parents=True)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("meow")
    with pytest.raises(ConfigurationError, match=r"photos, and no Delta table → choose another lake\.root"):
        tables.create(TableName("control", "photos"), schema_of("a INT"))
    assert (folder / name).exists()


def _refuse(*_: object) -> None:
    raise PySparkException("no")


def test_a_catalog_that_removes_no_folder_is_one_clear_line(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.io.tables.table_creation._CREATION_ENDS", stop_after_attempt(2))
    monkeypatch.setattr("strandline.io.tables.table_creation.remove_folder", _refuse)
    table = TableName("control", "half")
    Path(tables.lake.path(table), "_delta_log").mkdir(parents=True)
    with pytest.raises(ConfigurationError, match=r"half, and Spark does not remove the rest \(no\) → remove"):
        tables.create(table, schema_of("a INT"))


@pytest.mark.check
def test_properties_with_quotes_and_backslashes_are_read_back(tables: Tables) -> None:
    table = TableName("control", "t")
    tables.create(table, schema_of("a INT"), properties={"strandline.shape": "my password, and a url"})
    tables.set_properties(table, {"strandline.token": "it's \\ here"})
    assert (
        tables.properties(table).items()
        >= {"strandline.shape": "my password, and a url", "strandline.token": "it's \\ here"}.items()
    )
    tables.set_properties(table, {"strandline.shape": "short", "strandline.token": "1"})
    assert tables.properties(table)["strandline.shape"] == "short"


def test_a_merge_says_what_happens_to_each_row_whatever_the_names_hold(tables: Tables, spark: SparkSession) -> None:
    name, odd = TableName("control", "t"), "a{}.`b'\\"
    tables.create(
        name,
        T.StructType([T.StructField("id", T.StringType()), T.StructField(odd, T.IntegerType())]),
        properties=BY_NAME,
    )
    old = ["it's", "b\\", "{id}", "gone", "kept"]
    tables.append(name, spark.createDataFrame([(key, 1) for key in old], tables.read(name).schema))
    rows = spark.createDataFrame(
        [("it's", 2), ("b\\", 3), ("{id}", 0), ("new", 5), ("unwanted", -1)], tables.read(name).schema
    )
    column = quoted(odd)
    rule = MergeRule(("id",)).delete(when=f"s.{column} = 0 AND t.id = {literal('{id}')}").update(rows.columns)
    rule = rule.insert(rows.columns, when=f"s.{column} > 0").delete_missing(when=f"t.id = {literal('gone')}")
    assert tables.merge(name, rows, rule) == Merged(inserted=1, updated=2, deleted=2)
    tables.update(name, {odd: "7"}, "id = " + literal("b\\"))
    assert tables.delete(name, f"id IN ({literal('kept')})") == 1
    assert sorted(map(tuple, tables.read(name).collect())) == [("b\\", 7), ("it's", 2), ("new", 5)]


@pytest.mark.long
def test_the_log_s_files_tell_what_describe_history_tells(tables: Tables) -> None:
    table = TableName("control", "t")
    tables.create(table, schema_of("a INT"), properties={"delta.checkpointInterval": "3"})
    rows = tables.spark.range(5).selectExpr("CAST(id AS INT) AS a")
    tables.append(table, rows, options={"userMetadata": "mine"})
    tables.merge(table, rows.where("a > 2"), MergeRule(("a",)).update([], {"a": "s.a + 10"}))
    tables.delete(table, "a = 0")
    tables.set_properties(table, {"strandline.x": "1"})
    tables.spark.sql(f"RESTORE TABLE {tables.lake.sql(table)} TO VERSION AS OF 1")
    told = [Commit.of_row(row) for row in tables.spark.sql(f"DESCRIBE HISTORY {tables.lake.sql(table)}").collect()]
    assert tables.history(table, 100) == told
    assert tables.history(table, 2) == told[:2]
    assert tables.version(table) == told[0].version == 5
    tables.replace(table, rows.selectExpr("a AS b"))
    tables.spark.sql(f"CREATE OR REPLACE TABLE {tables.lake.sql(table)} USING delta COMMENT 'new' AS SELECT 1 AS c")
    _assert_files_tell_what_detail_tells(tables, table)
    tables.spark.sql(f"RESTORE TABLE {tables.lake.sql(table)} TO VERSION AS OF 5")
    _assert_files_tell_what_detail_tells(tables, table)
    told = [Commit.of_row(row) for row in tables.spark.sql(f"DESCRIBE HISTORY {tables.lake.sql(table)}").collect()]

    log = Path(tables.lake.path(table)) / "_delta_log"
    identity = tables.id(table)
    for version in range(3):
        (log / f"{version:020}.json").unlink()  # as Delta removes what is older than a checkpoint
    assert tables.version(table) == 8
    _assert_files_tell_what_detail_tells(tables, table)
    assert tables.history(table, 100) == told[:-3]
    (log / "_last_checkpoint").unlink()
    assert (tables.version(table), tables.id(table)) == (8, identity), "what the files do not tell, Spark does"


def _assert_files_tell_what_detail_tells(tables: Tables, table: TableName) -> None:
    found, told = LogFolder(LocalFolder(Path(tables.lake.path(table)))).metadata(), tables.detail(table)
    assert found is not None
    assert (found.id, found.description, found.properties) == (
        told["id"],
        told["description"] or "",
        told["properties"],
    )


@pytest.mark.parametrize("once", [True, False])
def test_an_append_under_way_outlives_a_commit_of_properties(
    tables: Tables, spark: SparkSession, tmp_path: Path, once: bool
) -> None:
    table, begun, may_end = TableName("control", "t"), tmp_path / "begun", tmp_path / "may_end"
    tables.create(table, schema_of("id BIGINT"))

    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begun.touch()
        for _ in range(600):
            if not may_end.exists():
                time.sleep(0.1)
        yield from batches

    rows = spark.range(0, 3, 1, 1).mapInArrow(slowly, "id BIGINT")
    append = partial(tables.append_once, app_id="app", sequence=1, proof="mine", after=0) if once else tables.append
    with ThreadPoolExecutor(1) as pool:
        appended = pool.submit(append, table, rows)
        while not begun.exists() and not appended.done():
            time.sleep(0.05)
        tables.set_properties(table, {"strandline.x": "1"})
        may_end.touch()
        assert appended.result() == (Appended(3, None) if once else None)
    assert tables.read(table).count() == 3


@dataclass(frozen=True)
class ShutTables(Tables):
    """Append nothing for the first time."""

    shut: list[bool]

    def append(self, table: TableName, rows: DataFrame, *, options: Mapping[str, str] | None = None) -> None:
        if self.shut:
            self.shut.clear()
            raise OSError("no space left")
        super().append(table, rows, options=options)


def test_a_notification_that_could_not_be_appended_is_sent_with_the_next(spark: SparkSession, lake: Lake) -> None:
    tables = ShutTables(spark, lake, [True])
    notifications = Notifications(tables, "shop", ("table",), seconds=60)
    notifications.notify("Signal", "SKIPPED", "1")
    with pytest.raises(OSError, match="no space"):
        notifications.flush()
    notifications.notify("Signal", "SKIPPED", "2")
    notifications.flush()
    notifications.flush()
    assert sorted(row["id"] for row in tables.read(NOTIFICATIONS).collect()) == ["1", "2"]
