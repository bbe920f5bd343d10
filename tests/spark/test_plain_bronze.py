"""Bronze in a folder: a table of any age becomes plain, Spark goes on with it, and its files stay few and sorted."""

from __future__ import annotations

import os
import time
from pathlib import Path

import bson
import pytest
from lakehouse import bronze_writer
from pyspark.sql import functions as F

from strandline.bronze.offsets import committed
from strandline.errors import ConfigurationError
from strandline.io.delta_log.commits import LogFolder
from strandline.io.delta_log.followed_table import FollowedTable
from strandline.io.delta_log.local_folder import LocalFolder
from strandline.io.delta_log.plain_protocol import make_plain
from strandline.io.delta_log.sorted_rewrite import merge_small_files
from strandline.io.tables.ddl import schema_of
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.io.tables.file_maintenance import DeltaRsFiles, FileRetention, set_retention
from strandline.io.tables.increments import rows_appended
from strandline.io.tables.spark_tables import Tables
from strandline.model.table_schemas import BRONZE_DDL, bronze_table

BRONZE = bronze_table("test")
TOKEN = '{"_data": "8200"}'
OLD = {"delta.appendOnly": "true", "delta.enableChangeDataFeed": "true"}


def clustered(tables: Tables) -> None:
    """Create bronze with liquid clustering, as Spark does in a catalog and in HDFS."""
    owner = {"strandline.source": "test", "strandline.deployment": "cluster"}
    tables.create(BRONZE, schema_of(BRONZE_DDL), properties=OLD | owner, cluster_by=("collection", "position"))


def event(number: int) -> bytes:
    return bson.encode(
        {
            "_id": {"_data": f"82{number:08X}"},
            "operationType": "insert",
            "clusterTime": bson.Timestamp(1000, number),
            "fullDocument": {"_id": number},
            "ns": {"db": "shop", "coll": f"c{number % 3}"},
            "documentKey": {"_id": number},
        }
    )


def capture(tables: Tables, batches: range, *, native: bool, per_batch: int = 3) -> None:
    bronze = bronze_writer(tables, native=native)
    bronze.open("cluster", None)
    for batch in batches:
        events = [event(batch * per_batch + number) for number in range(per_batch)]
        bronze.commit(events, batch=batch, resume_token=TOKEN, snapshot_id=None)
    bronze.close()


def positions(tables: Tables) -> list[str]:
    return sorted(row["position"] for row in tables.read(BRONZE).where("op = 'c'").collect())


def days_ago(tables: Tables, days: float) -> None:
    """The files of the table, and the log's account of them, are as old as that."""
    folder, at = Path(tables.lake.path(BRONZE)), time.time() - days * 86_400
    for file in folder.glob("*.parquet"):
        os.utime(file, (at, at))
    for file in (folder / "_delta_log").glob("*.json"):
        lines = file.read_text().split("\n")
        file.write_text("\n".join(_aged(line, int(at * 1000)) for line in lines))
        (folder / "_delta_log" / f".{file.name}.crc").unlink(missing_ok=True)


def _aged(line: str, at: int) -> str:
    import json

    action = json.loads(line) if line else {}
    for kind in ("add", "remove"):
        if kind in action:
            action[kind]["modificationTime" if kind == "add" else "deletionTimestamp"] = at
    return json.dumps(action) if action else line


@pytest.mark.long
def test_a_clustered_table_becomes_plain_in_one_commit(tables: Tables) -> None:
    """Rows, versions, id, transactions and the change feed stay. Spark and delta-rs write it in turns."""
    clustered(tables)
    capture(tables, range(1, 4), native=False)
    tables.spark.sql(f"OPTIMIZE {tables.lake.sql(BRONZE)}")
    before, version, rows = tables.detail(BRONZE), tables.version(BRONZE), positions(tables)
    assert before["clusteringColumns"] == ["collection", "position"]
    capture(tables, range(4, 6), native=True)
    after = tables.detail(BRONZE)
    assert (after["id"], after["clusteringColumns"]) == (before["id"], [])
    assert (after["minReaderVersion"], after["minWriterVersion"]) == (1, 4)
    assert tables.version(BRONZE) == version + 3, "one commit ends the clustering, and two are batches"
    assert [row for row in positions(tables) if row in rows] == rows
    capture(tables, range(6, 8), native=False)  # Spark goes on
    capture(tables, range(8, 9), native=True)
    last = committed(tables, BRONZE)
    assert last is not None
    assert last.batch == 8
    seen = rows_appended(tables, BRONZE, 1, tables.version(BRONZE)).where("op = 'c'")
    assert sorted(row["position"] for row in seen.select("position").collect()) == positions(tables)
    old = tables.read(BRONZE, version=version).where("op = 'c'").count()
    assert old == len(rows)
    make_plain(LocalFolder(Path(tables.lake.path(BRONZE))))
    assert tables.version(BRONZE) == version + 6, "a plain table gets no further commit"


@pytest.mark.long
def test_a_table_that_spark_made_keeps_its_reader_version(tables: Tables) -> None:
    """Spark names the features of a new table (writer 7). delta-rs would raise the reader version to 2."""
    capture(tables, range(1, 2), native=False)
    capture(tables, range(2, 3), native=True)
    DeltaRsTables(tables.lake).set_properties(BRONZE, {"strandline.note": "x"})
    capture(tables, range(3, 4), native=True)
    capture(tables, range(4, 5), native=False)
    found = tables.detail(BRONZE)
    assert (found["minReaderVersion"], found["minWriterVersion"]) == (1, 4)
    assert len(positions(tables)) == 12


def test_two_captures_end_the_clustering_once(tables: Tables) -> None:
    clustered(tables)
    folder = Path(tables.lake.path(BRONZE))
    first, second = FollowedTable.open(LocalFolder(folder)), FollowedTable.open(LocalFolder(folder))
    assert first.version == second.version == 1


def test_a_table_with_another_feature_is_refused(tables: Tables) -> None:
    clustered(tables)
    tables.set_properties(BRONZE, {"delta.enableRowTracking": "true"})
    version = tables.version(BRONZE)
    with pytest.raises(ConfigurationError, match=r"rowTracking.*engine: spark"):
        capture(tables, range(1, 2), native=True)
    assert tables.version(BRONZE) == version


def test_small_files_become_one_while_a_capture_writes(tables: Tables) -> None:
    bronze = bronze_writer(tables, native=True)
    bronze.open("cluster", None)
    for batch in range(1, 41):
        bronze.commit([event(batch)], batch=batch, resume_token=TOKEN, snapshot_id=None)
    folder, files = Path(tables.lake.path(BRONZE)), DeltaRsFiles(DeltaRsTables(tables.lake), BRONZE)
    before = tables.version(BRONZE)
    assert merge_small_files(LocalFolder(folder), at_least=41) == (0, 0)
    assert merge_small_files(LocalFolder(folder), at_least=40) == (40, 1)
    for batch in range(41, 43):
        bronze.commit([event(batch)], batch=batch, resume_token=TOKEN, snapshot_id=None)
    bronze.close()
    assert files.count() == 3
    assert len(positions(tables)) == 42
    feed = rows_appended(tables, BRONZE, before, tables.version(BRONZE)).where("op = 'c'")
    assert feed.count() == 3, "a merge changes no row: the batch of *before*, and the two later ones"
    assert files.compact() == (3, 1)
    assert files.compact() == (0, 0), "a file is sorted once"
    assert len(positions(tables)) == 42


def test_a_capture_merges_its_small_files_by_itself(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.io.delta_log.table_upkeep._MANY_FILES", 10)
    bronze = bronze_writer(tables, native=True)
    bronze.open("cluster", None)
    tables.set_properties(BRONZE, {"delta.checkpointInterval": "12"})
    bronze.close()
    capture(tables, range(1, 60), native=True, per_batch=1)
    assert DeltaRsFiles(DeltaRsTables(tables.lake), BRONZE).count() < 40
    assert len(positions(tables)) == 59
    assert {row["batch"] for row in tables.read(BRONZE).select("batch").collect()} == set(range(1, 60))


def test_retention_and_vacuum_without_spark_are_read_by_spark(tables: Tables) -> None:
    capture(tables, range(1, 5), native=True)
    folder, files = Path(tables.lake.path(BRONZE)), DeltaRsFiles(DeltaRsTables(tables.lake), BRONZE)
    for _ in range(2):
        set_retention(files.tables, BRONZE, FileRetention(24, 48))
    assert tables.properties(BRONZE)["delta.deletedFileRetentionDuration"] == "interval 24 hours"
    (folder / "part-of-a-killed-worker.zstd.parquet").write_bytes(b"PAR1")
    days_ago(tables, 3)
    assert files.compact() == (4, 1)
    for file in (folder / "_delta_log").glob("*.json"):
        file.write_text("\n".join(_aged_removal(line) for line in file.read_text().split("\n")))
    files.vacuum()
    assert len(list(folder.glob("*.parquet"))) == 1, "what left the table, and what never came to be in it, is gone"
    assert len(positions(tables)) == 12
    told = tables.spark.sql(f"DESCRIBE HISTORY {tables.lake.sql(BRONZE)}").collect()
    assert [row["operation"] for row in told[:3]] == ["VACUUM END", "VACUUM START", "OPTIMIZE"]
    assert LogFolder(LocalFolder(folder)).newest() == tables.version(BRONZE)
    assert tables.read(BRONZE).agg(F.max("batch")).first() == (4,)


def _aged_removal(line: str) -> str:
    return _aged(line, int((time.time() - 2 * 86_400) * 1000)) if '"remove"' in line else line
