"""The Spark data source against a real mongod: a snapshot, restarts, a lost history, and capture beside it."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from connect_server import ROOT, connect_server
from documents import Page
from lakehouse import assert_equal_to_source, assert_streamed_exactly_once, bronze, pipeline, restore
from pyarrow.dataset import dataset
from pymongo import MongoClient
from pymongo.database import Database
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from stream_reading import failing, needs_failpoints

from strandline.errors import ConfigurationError, one_line
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.silver.run_silver import run_silver
from strandline.jobs.snapshot.chunk_task import ChunkReader
from strandline.jobs.spark_source.opened_source import START, OpenedSource, settings_of
from strandline.jobs.spark_source.source_stream import SourceStream
from strandline.jobs.spark_source.stream_position import Position
from strandline.model.tables import TableName
from strandline.source.errors import SnapshotExpired
from strandline.spark_source import into_bronze, register

BRONZE, ORDERS = TableName("bronze", "test"), TableName("silver", "orders")
_PAGE = Page(ROOT / "docs" / "spark-source.md")
_LOST = Position(3, token='{"_data": "826000000000000001"}')


@pytest.fixture
def options(mongo_uri: str, database: Database[dict[str, Any]], tmp_path: Path) -> dict[str, str]:
    """Settings by name, as a user gives them to a reader."""
    return {
        "source.name": "test",
        "source.uri": mongo_uri,
        "capture.scope": "database",
        "capture.target": database.name,
        "capture.snapshot_chunk_size": "10",
        "capture.heartbeat_interval_ms": "100",
        "lake.root": str(tmp_path / "lake"),
    }


@pytest.fixture
def stream(options: dict[str, str]) -> Iterator[SourceStream]:
    with closing(SourceStream(OpenedSource.open(settings_of(options), "w"))) as opened:
        yield opened


def rows(stream: SourceStream, start: Position, end: Position) -> list[dict[str, Any]]:
    found = [row for read in stream.readers(start, end) for batch in read() for row in batch.to_pylist()]
    return [{name: value for name, value in row.items() if name not in ("captured_at", "writer")} for row in found]


def next_position(stream: SourceStream, start: Position) -> Position:
    """The end of the next batch; an idle poll gives *start* back."""
    while (end := stream.latest(start)) == start:
        pass
    return end


def test_a_restart_reads_the_same_batch_again(
    options: dict[str, str], stream: SourceStream, database: Database[dict[str, Any]]
) -> None:
    """# promise 2. The positions go through JSON, as in a checkpoint."""
    database.orders.insert_many([{"_id": number} for number in range(50)])
    first = stream.latest(Position())
    snapshot = rows(stream, Position(), first)
    reads = [row for row in snapshot if row["op"] == "r"]
    assert len(reads) == 50
    assert len({row["position"] for row in reads}) == 1, "one cluster time"
    assert len({row["chunk"] for row in reads}) > 1, "several partitions"
    assert [row["batch"] for row in snapshot if row["resume_token"]] == [1]
    database.orders.update_many({}, {"$set": {"seen": True}})
    second = next_position(stream, first)
    database.orders.delete_one({"_id": 0})
    third = next_position(stream, second)
    expected = rows(stream, second, third)
    with closing(SourceStream(OpenedSource.open(settings_of(options), "w"))) as restarted:
        stored = [Position.from_json(json.loads(json.dumps(each.to_json()))) for each in (first, second, third)]
        assert len(rows(restarted, stored[0], stored[1])) == 50
        again = rows(restarted, stored[1], stored[2])
        assert next_position(restarted, stored[2]).batch == 4
    for row in (*again, *expected):
        del row["source"]["ts_ms"]  # of a heartbeat: the clock
    assert again == expected
    assert again[-1]["resume_token"] == third.token


@pytest.mark.parametrize("batch", [8, 9], ids=["the batch is repeated", "the next batch is read"])
def test_a_checkpoint_is_refused_whose_batch_number_stands_for_another_batch_of_bronze(
    options: dict[str, str], batch: int
) -> None:
    """An older copy of bronze was put back, and another writer has continued it up to the same number."""
    last = Position(9, token='{"_data": "82EE"}')
    start = last if batch == 9 else Position(8, token='{"_data": "82DD"}')
    opened = SourceStream(OpenedSource.open(settings_of(options), "w"), Position(9, token='{"_data": "82FF"}'))
    with closing(opened), pytest.raises(ConfigurationError, match="an older copy that another writer has continued"):
        opened.readers(start, last if batch == 8 else Position(10, token='{"_data": "82FF"}'))


@needs_failpoints
def test_a_partition_that_starts_too_late_reads_at_a_later_time(
    stream: SourceStream, mongo: MongoClient[dict[str, Any]], database: Database[dict[str, Any]]
) -> None:
    database.orders.insert_many([{"_id": number} for number in range(5)])
    *_, reader = stream.readers(Position(), stream.latest(Position()))
    assert isinstance(reader, ChunkReader)
    late: ChunkReader = pickle.loads(pickle.dumps(reader))  # Spark pickles it, too
    too_old = {"errorCode": 239}  # SnapshotTooOld, which a server says after minutes
    with failing(mongo, "find aggregate", **too_old):
        assert sum(batch.num_rows for batch in late()) == 6
    with (
        failing(mongo, "find aggregate", **too_old),
        pytest.raises(SnapshotExpired, match="snapshot history expired") as raised,
    ):
        next(replace(late, may_read_later=False)())
    assert "minSnapshotHistoryWindowInSeconds" in str(raised.value.next_step)


@dataclass
class SparkStream:
    """A streaming query of Spark that copies the source into bronze, and the pipeline that owns the lake."""

    ctx: JobContext
    options: dict[str, str]
    checkpoints: Path

    def run(self, checkpoint: str) -> None:
        """Run the query until no event is left."""
        spark = self.ctx.spark
        target = into_bronze(spark, self.options)
        reading = spark.readStream.format("strandline").options(**target.options).load()
        writing = reading.writeStream.option("checkpointLocation", str(self.checkpoints / checkpoint))
        target.start(writing.trigger(availableNow=True)).awaitTermination()

    def lose_last_commit(self, checkpoint: str) -> None:
        """Leave the checkpoint as after a crash between Delta's commit and Spark's."""
        commits = (self.checkpoints / checkpoint / "commits").glob("[0-9]*")
        newest = max(commits, key=lambda file: int(file.name))
        newest.unlink()
        newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)


@pytest.fixture
def spark_stream(
    spark: SparkSession, options: dict[str, str], mongo_uri: str, database: Database[dict[str, Any]], tmp_path: Path
) -> SparkStream:
    register(spark)
    database.orders.insert_many([{"_id": number, "total": number} for number in range(50)])
    return SparkStream(pipeline(spark, mongo_uri, database.name, tmp_path / "lake"), options, tmp_path)


@pytest.mark.long
def test_a_batch_query_reads_every_document_once_at_one_time_in_several_chunks(spark_stream: SparkStream) -> None:
    loaded = spark_stream.ctx.spark.read.format("strandline").options(**spark_stream.options).load()
    counts = loaded.where("op = 'r'").agg(F.count("*"), F.countDistinct("position"), F.countDistinct("chunk")).first()
    assert counts is not None
    assert (counts[0], counts[1], counts[2] > 1) == (50, 1, True)


@pytest.mark.long
def test_a_stream_commits_a_batch_once_that_spark_repeats_after_a_crash(
    spark_stream: SparkStream, database: Database[dict[str, Any]]
) -> None:
    """# promise 1, promise 2"""
    ctx, spark = spark_stream.ctx, spark_stream.ctx.spark
    spark_stream.run("first")
    database.orders.update_one({"_id": 1}, {"$set": {"total": -1}})
    database.orders.delete_one({"_id": 2})
    spark_stream.run("first")
    spark_stream.lose_last_commit("first")
    database.orders.insert_one({"_id": 100})
    spark_stream.run("first")
    assert_streamed_exactly_once(ctx)
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "orders")
    # the query of the page reads the present documents from bronze alone
    bronze(ctx).createOrReplaceTempView("shop_events")
    present = spark.sql(_PAGE.blocks("sql")[0]).collect()
    spark.catalog.dropTempView("shop_events")
    live = ctx.tables.read(ORDERS).where("NOT _deleted").collect()
    assert {row["key"] for row in present} == {row["_key"] for row in live}


@pytest.mark.long
def test_capture_continues_a_stream_and_its_stale_checkpoint_is_refused(
    spark_stream: SparkStream, database: Database[dict[str, Any]]
) -> None:
    """# promise 1, promise 2"""
    ctx = spark_stream.ctx
    spark_stream.run("first")
    database.orders.delete_one({"_id": 3})
    before = bronze(ctx).agg(F.max("batch")).first()
    captured = run_capture(ctx, once=True)
    assert before is not None
    assert captured.documents == 0, "no second snapshot"
    assert captured.batch > before[0]
    with pytest.raises(StreamingQueryException) as stale:
        spark_stream.run("first")
    assert "another writer has continued" in one_line(stale.value)
    database.orders.insert_one({"_id": 101})
    spark_stream.run("second")
    assert_streamed_exactly_once(ctx)
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "orders")


@pytest.mark.long
def test_a_checkpoint_ahead_of_a_restored_bronze_is_refused_and_a_new_one_continues(
    spark_stream: SparkStream, database: Database[dict[str, Any]]
) -> None:
    ctx = spark_stream.ctx
    spark_stream.run("first")
    version = ctx.tables.version(BRONZE)
    database.orders.insert_one({"_id": 102})
    spark_stream.run("first")
    restore(ctx, BRONZE, version)
    database.orders.insert_one({"_id": 103})
    with pytest.raises(StreamingQueryException) as ahead:
        spark_stream.run("first")
    assert "bronze was restored" in one_line(ahead.value)
    spark_stream.run("restored")
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "orders")


@pytest.mark.long
def test_a_stream_from_a_lost_token_ends_with_one_line(spark_stream: SparkStream, tmp_path: Path) -> None:
    lost_options = {**spark_stream.options, START: json.dumps(_LOST.to_json())}
    reading = spark_stream.ctx.spark.readStream.format("strandline").options(**lost_options).load()
    writing = reading.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "third"))
    query = writing.trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException) as lost:
        query.awaitTermination()
    message = one_line(lost.value)
    assert "the server cannot read the committed token" in message
    assert "\n" not in message


_PIPELINE = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

@dp.table
def shop_events():
    return SparkSession.active().readStream.format("strandline").options(**{options!r}).load()
"""


@pytest.mark.long
def test_a_declarative_pipeline_reads_the_source(
    options: dict[str, str], database: Database[dict[str, Any]], tmp_path: Path
) -> None:
    """Spark's own `spark-pipelines`, two runs: a snapshot, then one more document. Nothing registers the source."""
    database.orders.insert_many([{"_id": number} for number in range(50)])
    (tmp_path / "events.py").write_text(_PIPELINE.format(options=options), encoding="utf-8")
    spec = f"name: shop\nstorage: {(tmp_path / 'storage').as_uri()}\nlibraries: [{{glob: {{include: events.py}}}}]\n"
    (tmp_path / "spark-pipeline.yml").write_text(spec, encoding="utf-8")
    warehouse = tmp_path / "warehouse"
    env = os.environ | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT / "pipelines")}
    # why one server: its catalog is in memory, and a second run finds the table there
    server = connect_server(
        tmp_path / "server.log", environment=env, conf={"spark.sql.warehouse.dir": warehouse.as_uri()}
    )
    with server as remote:
        command = [str(Path(sys.executable).with_name("spark-pipelines")), "--remote", remote, "run"]
        for rows in (50, 51):
            done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
            found = dataset(warehouse / "shop_events").to_table(columns=["op"])["op"].to_pylist()
            assert sum(op in ("r", "c") for op in found) == rows
            database.orders.insert_one({"_id": rows})
