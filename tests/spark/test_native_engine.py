"""What the native engine appends is the table that Spark would have written."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import bson
import pyarrow as pa
import pytest
from chispa import assert_df_equality
from lakehouse import bronze_writer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from strandline.bronze.engine import Reader, ReadFailed
from strandline.bronze.envelope import BatchEnd, Note, Stamp, control_table
from strandline.bronze.offsets import committed
from strandline.bronze.spark_engine import SparkEngine
from strandline.bronze.writer import BronzeWriter
from strandline.errors import ConfigurationError, ContractError, FencedError, StrandlineError
from strandline.io.delta_log.commits import LogFolder
from strandline.io.delta_log.local_folder import LocalFolder
from strandline.io.delta_log.table_folder import LOG, commit_name
from strandline.io.tables.increments import rows_appended
from strandline.io.tables.spark_tables import Tables
from strandline.jobs.context import JobContext
from strandline.model.table_schemas import bronze_table
from strandline.settings.configuration import Settings
from strandline.source.errors import NoAnswer

TOKEN = '{"_data": "8200"}'
MANY = 2_500  # more than are written without a worker


def event(number: int) -> bytes:
    return bson.encode(
        {
            "_id": {"_data": f"82{number:08X}"},
            "operationType": "insert",
            "clusterTime": bson.Timestamp(1000, number),
            "collectionUUID": bson.Binary(bytes(range(16)), 4),
            "wallTime": bson.datetime_ms.DatetimeMS(1_700_000_000_123),
            "fullDocument": {"_id": number, "text": "grün ✓" * (number % 5)},
            "ns": {"db": "shop", "coll": "orders" if number % 2 else "✓" * 40},
            "documentKey": {"_id": number},
            "lsid": {"id": number},
            "txnNumber": bson.Int64(number),
        }
    )


SOME = [
    batch
    for number in range(3)
    for batch in control_table(Stamp("s", "w", 5), batch=number, end=BatchEnd(None, "s")).to_batches()
]
read_some: Reader = partial(iter, SOME)
"""Stands for a chunk of a snapshot: rows of another process, in parts."""


def writer(tables: Tables, source: str, *, native: bool, name: str = "w", stored_json: bool = False) -> BronzeWriter:
    return bronze_writer(tables, source, name, lambda: 1_700_000_000_654_321, native=native, stored_json=stored_json)


def fill(bronze: BronzeWriter) -> None:
    bronze.open("cluster", None)
    try:
        bronze.commit([], batch=1, resume_token=TOKEN, snapshot_id=None)
        bronze.commit(
            [event(number) for number in range(20)],
            batch=2,
            resume_token=TOKEN,
            snapshot_id="s1",
            last_event="e",
            ends_outside_transaction=True,
        )
        bronze.commit([event(number) for number in range(20, 20 + MANY)], batch=3, resume_token=TOKEN, snapshot_id=None)
        bronze.append_read(read_some, app_id=bronze.app_id("s", 0), sequence=1)
    finally:
        bronze.close()


def test_a_python_worker_that_has_read_a_chunk_reads_another(tables: Tables, tmp_path: Path) -> None:
    """The idle workers of all sessions of the JVM take turns, so there may have to be many chunks."""
    processes = tmp_path / "processes"
    processes.touch()

    def read_here() -> Iterator[pa.RecordBatch]:
        with processes.open("a") as lines:
            lines.write(f"{os.getpid()}\n")
        yield from control_table(
            Stamp("s", "w", 5), batch=0, end=BatchEnd(None, None), note=Note("offset")
        ).to_batches()

    bronze = writer(tables, "s", native=False)
    bronze.open("cluster", None)
    chunks, read_by = 0, list[str]()
    while len(read_by) == len(set(read_by)):
        assert chunks < 30
        bronze.append_read(read_here, app_id=bronze.app_id("s", 0), sequence=chunks)
        chunks, read_by = chunks + 1, processes.read_text().split()
    rows = tables.read(bronze_table("s")).where("op = 'offset'")
    assert rows.count() == len(read_by) == chunks


@pytest.mark.check
def test_both_engines_write_the_same_rows(tables: Tables) -> None:
    fill(writer(tables, "one", native=True, stored_json=True))
    fill(writer(tables, "two", native=False, stored_json=True))
    one, two = bronze_table("one"), bronze_table("two")
    same = F.struct(
        "source.version",
        "source.ts_ms",
        "source.snapshot",
        "source.ord",
        "source.lsid",
        "source.txn_number",
        "source.wall_time",
    )
    assert_df_equality(
        tables.read(one).withColumn("source", same), tables.read(two).withColumn("source", same), ignore_row_order=True
    )
    assert committed(tables, one) == committed(tables, two)
    assert tables.version(one) == tables.version(two), "one commit each"
    assert tables.read(one).where("collection = 'orders' AND batch = 2 AND position > '000003e8'").count() == 10
    assert rows_appended(tables, one, 1, tables.version(one)).count() == tables.read(one).count(), (
        "the change feed has them all"
    )


def test_a_checkpoint_comes_when_it_is_due_without_a_commit_by_spark(tables: Tables) -> None:
    writer(tables, "shop", native=False).open("cluster", None)
    bronze = writer(tables, "shop", native=True)
    tables.set_properties(bronze.table, {"delta.checkpointInterval": "7"})
    bronze.open("cluster", None)
    for batch in range(1, 10):
        bronze.commit([], batch=batch, resume_token=TOKEN, snapshot_id=None)
    bronze.close()
    folder = Path(tables.lake.path(bronze.table))
    log = LogFolder(LocalFolder(folder))
    assert 7 <= log.checkpoint() <= 10, "written beside the commits, so it may hold later ones"
    engines = {commit.version: (commit.engine or "").split("/")[0] for commit in tables.history(bronze.table, 9)}
    assert {engine.partition(":")[0] for engine in engines.values()} == {"delta-rs"}
    for version in range(log.checkpoint()):
        (folder / commit_name(version)).unlink()  # only the checkpoint is left of them
    assert tables.read(bronze.table).count() == 9
    # the checkpoint knows every transaction: a rival that took the same number loses
    rival = writer(tables, "shop", native=False, name="rival")
    last = rival.open("cluster", None)
    assert last is not None
    assert last.batch == 9
    with pytest.raises(FencedError):
        rival.commit([], batch=9, resume_token=TOKEN, snapshot_id=None)
    rival.commit([], batch=10, resume_token=TOKEN, snapshot_id=None)
    assert tables.read(bronze.table).count() == 10


def test_old_log_files_go_with_a_checkpoint_and_the_table_stays_whole(tables: Tables) -> None:
    writer(tables, "shop", native=False).open("cluster", None)
    bronze = writer(tables, "shop", native=True)
    day = "interval 24 hours"
    kept = {"delta.logRetentionDuration": day, "delta.deletedFileRetentionDuration": day}
    tables.set_properties(bronze.table, {"delta.checkpointInterval": "5", **kept})
    bronze.open("cluster", None)
    folder = Path(tables.lake.path(bronze.table))
    log = LogFolder(LocalFolder(folder))
    for batch in range(1, 21):
        bronze.commit([], batch=batch, resume_token=TOKEN, snapshot_id=None)
        bronze._engine.table.upkeep.close()  # type: ignore[attr-defined]  # why: a busy writer may be far ahead of its checkpoint
        if batch == 10:  # three days pass
            for file in (folder / LOG).glob("*.json"):
                os.utime(file, (time.time() - 3 * 24 * 3600,) * 2)
    bronze.close()
    assert not (folder / commit_name(0)).exists()
    assert (folder / commit_name(log.checkpoint())).exists()
    assert tables.read(bronze.table).count() == 20
    last = writer(tables, "shop", native=True).open("cluster", None)
    assert last is not None
    assert last.batch == 20


def test_a_checkpoint_that_fails_costs_no_commit(tables: Tables, caplog: pytest.LogCaptureFixture) -> None:
    writer(tables, "shop", native=False).open("cluster", None)
    bronze = writer(tables, "shop", native=True)
    tables.set_properties(bronze.table, {"delta.checkpointInterval": "2"})
    bronze.open("cluster", None)
    log = Path(tables.lake.path(bronze.table)) / LOG
    for version in range(2, 40):  # a folder stands where the checkpoint should be
        (log / f"{version:020}.checkpoint.parquet").mkdir()
    for batch in range(1, 6):
        bronze.commit([], batch=batch, resume_token=TOKEN, snapshot_id=None)
    bronze.close()
    assert "capture tries again later" in caplog.text
    for folder in log.glob("*.checkpoint.parquet"):
        folder.rmdir()
    assert tables.read(bronze.table).count() == 5


# scenario: Q03, Q05
@pytest.mark.parametrize("native", [False, True])
def test_writers_of_both_engines_fence_each_other(tables: Tables, native: bool) -> None:
    sleeper, rival = (
        writer(tables, "shop", native=native, name="sleeper"),
        writer(tables, "shop", native=not native, name="rival"),
    )
    assert sleeper.open("cluster", None) is None
    sleeper.commit([], batch=1, resume_token=TOKEN, snapshot_id=None)
    last = rival.open("cluster", None)
    assert last is not None
    assert last.batch == 1
    rival.commit([event(1)], batch=2, resume_token=TOKEN, snapshot_id=None)
    rival.commit([event(2)], batch=3, resume_token=TOKEN, snapshot_id=None)
    version = tables.version(rival.table)
    for batch in (2, 3):
        with pytest.raises(FencedError, match="another writer"):
            sleeper.commit([event(batch)], batch=batch, resume_token=TOKEN, snapshot_id=None)
    assert tables.version(rival.table) == version
    sleeper.close()
    rival.close()


@pytest.mark.long
def test_a_restore_under_a_native_writer_is_noticed(tables: Tables) -> None:
    bronze = writer(tables, "shop", native=True)
    bronze.open("cluster", None)
    bronze.commit([], batch=1, resume_token=TOKEN, snapshot_id=None)
    tables.spark.sql(f"RESTORE TABLE {tables.lake.sql(bronze.table)} TO VERSION AS OF 0")
    with pytest.raises(ContractError, match="restored"):
        bronze.commit([], batch=2, resume_token=TOKEN, snapshot_id=None)
    bronze.close()
    again = writer(tables, "shop", native=True, name="again")
    last = again.open("cluster", None)
    assert last is not None
    assert last.epoch == 2
    again.commit([event(1)], batch=last.batch + 1, resume_token=TOKEN, snapshot_id=None)
    again.close()
    tables.spark.sql(f"RESTORE TABLE {tables.lake.sql(bronze.table)} TO VERSION AS OF 0")
    anew = writer(tables, "shop", native=True, name="anew")
    last = anew.open("cluster", None)
    assert last is not None
    assert (last.epoch, last.resume_token) == (3, None), (
        "no batch came back, and Delta knows the numbers of both epochs"
    )
    anew.commit([], batch=last.batch + 1, resume_token=TOKEN, snapshot_id=None)
    anew.close()


def test_an_error_in_a_worker_reaches_the_caller(tables: Tables) -> None:
    bronze = writer(tables, "shop", native=True)
    bronze.open("cluster", None)
    failing: Reader = _fail
    with pytest.raises(ReadFailed, match="ContractError") as failed:
        bronze.append_read(failing, app_id="a", sequence=1)
    assert isinstance(failed.value.__cause__, ContractError)
    bronze.close()
    assert tables.read(bronze.table).isEmpty()
    assert not list(Path(tables.lake.path(bronze.table)).glob("*.parquet")), "what was begun is gone"


def test_a_source_that_does_not_answer_a_worker_or_refuses_is_told_as_it_is(tables: Tables) -> None:
    bronze = writer(tables, "shop", native=True)
    bronze.open("cluster", None)
    for reader, error, why in ((_wait_in_vain, NoAnswer, "nobody"), (_refused, ConfigurationError, "code 13.*→ grant")):
        with pytest.raises(error, match=why):
            bronze.append_read(reader, app_id="a", sequence=1)
    bronze.close()


def _wait_in_vain() -> Iterator[pa.RecordBatch]:
    yield from read_some()
    raise NoAnswer("nobody is there", next_step="wait")


def _refused() -> Iterator[pa.RecordBatch]:
    yield from read_some()
    raise ConfigurationError("code 13", next_step="grant it")


@pytest.mark.parametrize("reader", ["executors", "native workers", "driver"])
def test_a_collection_that_is_dropped_while_a_chunk_is_read_may_be_tried_again(tables: Tables, reader: str) -> None:
    bronze = writer(tables, "shop", native=reader == "native workers")
    if reader == "driver":
        bronze.open_engine = partial(SparkEngine.open, tables, reads_here=True)
    bronze.open("cluster", None)
    with pytest.raises(Exception) as failed:  # noqa: PT011  # why: Spark raises an error of its own
        bronze.append_read(_fail, app_id="a", sequence=1)
    assert not isinstance(failed.value, StrandlineError), "a chunk whose read fails so is retried, and then discarded"
    bronze.close()
    assert tables.read(bronze.table).isEmpty()


def _fail() -> Iterator[pa.RecordBatch]:
    yield from read_some()
    raise ContractError("it was dropped meanwhile", next_step="read the next one")


def test_a_lake_elsewhere_is_refused(spark: SparkSession) -> None:
    settings = Settings(lake={"catalog": "spark_catalog"}, capture={"engine": "native"})  # type: ignore[arg-type]  # why: pydantic builds the sections
    ctx = JobContext(settings, spark, Tables(spark, settings.lake_location))
    with pytest.raises(ConfigurationError, match="engine: auto"):
        ctx.for_capture()
