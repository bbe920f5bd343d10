"""Small demo on real parts: MongoDB, live changes, bronze, silver, gold, quality and the comparison."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from guarded_server import guarded_server, uri_of
from lakehouse import Demo
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import BulkWriteError
from pyspark.sql import SparkSession
from rich.console import Console

from strandline.demo.dataset import load_dataset
from strandline.demo.replay import Replay, operations
from strandline.errors import ConfigurationError
from strandline.io.tables.spark_tables import Tables
from strandline.jobs.demo import COLLECTIONS, DATABASE, run_demo
from strandline.jobs.gold.planned import graph_of
from strandline.jobs.gold.quality import suites_of
from strandline.model.tables import Lake, TableName
from strandline.settings.configuration import Settings, load_settings

ROOT = Path(__file__).parents[2]
_GOLD = ("delay_by_weather", "fleet_age", "on_time_performance")


def a_console() -> Console:
    return Console(file=io.StringIO(), width=160, no_color=True)


@pytest.mark.long
def test_the_readme_s_readers_read_the_demo_s_tables(
    demo: Demo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "demo").symlink_to(demo.lake)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        names: dict[str, Any] = {}
        exec(block, names)  # why: it is the project's own README
        found = names["flights"]
        assert len(found.fetchall() if hasattr(found, "fetchall") else found) > 0


def test_a_small_demo_ends_with_every_document_equal(demo: Demo, spark: SparkSession) -> None:
    lake, shown = demo.lake, demo.shown
    compared = re.findall(rf"^ +{DATABASE}\.(\w+) +([\d,]+) +0 +0 +0 *$", shown, re.MULTILINE)
    assert [name for name, _ in compared] == sorted(COLLECTIONS), shown
    assert all(documents != "0" for _, documents in compared), shown

    tables = Tables(spark, Lake(root=str(lake)))
    assert {row["op"] for row in tables.read(TableName("bronze", DATABASE)).select("op").distinct().collect()} >= {
        "r",
        "c",
        "u",
        "d",
    }
    streamed = (
        tables.read(TableName("bronze", DATABASE))
        .where("op in ('c', 'u', 'd')")
        .select("collection")
        .distinct()
        .collect()
    )
    assert {row["collection"] for row in streamed} == set(COLLECTIONS), "every collection is streamed, too"
    assert not (lake / "bronze" / "left_by_an_earlier_demo").exists()
    for name in _GOLD:
        assert f"gold.{name}" in shown
    assert "documents by snapshot" in shown
    assert "5 of 5 expectations passed" in shown
    assert "Written by: bronze: Spark; silver: Spark 6 tables; gold: Spark 2 tables" in shown
    assert f"strandline --conf {lake / 'conf'} sql" in shown
    found = load_settings("local", lake / "conf")
    assert (found.engine, found.source.name, found.lake.root, found.quality.docs_dir) == (
        "spark",
        DATABASE,
        str(lake),
        str(lake / "quality-docs"),
    )
    assert set(graph_of(found.gold).nodes) == set(_GOLD)
    assert {str(suite.table) for suite in suites_of(found.quality)} == {"silver.flights"}


def test_a_failed_replay_raises_its_error_at_the_end(
    database: Database[dict[str, Any]], mongo: MongoClient[dict[str, Any]]
) -> None:
    dataset = load_dataset(50)
    written = operations(dataset, dataset.flights, seed=3)
    replay = Replay(mongo, database.name, [*written, written[0]])  # its key is taken
    replay.start()
    with pytest.raises(BulkWriteError):
        replay.join()


def test_a_folder_that_is_no_demos_lake_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("all my work", encoding="utf-8")
    (tmp_path / "bronze").mkdir()
    with pytest.raises(ConfigurationError, match=r"not a demo's lake, it holds thesis\.txt"):
        run_demo(Settings(), lake=tmp_path, rows=10, console=a_console())
    assert {entry.name for entry in tmp_path.iterdir()} == {"thesis.txt", "bronze"}


def test_a_database_of_the_same_name_is_left_alone(
    mongo: MongoClient[dict[str, Any]], mongo_uri: str, tmp_path: Path
) -> None:
    (tmp_path / "bronze").mkdir()
    mongo[DATABASE].passengers.insert_one({"_id": 1})
    try:
        with pytest.raises(ConfigurationError, match="has a database airline already → unset MONGODB_URI"):
            run_demo(Settings(source={"uri": mongo_uri}), lake=tmp_path, rows=10, console=a_console())  # type: ignore[arg-type]  # why: pydantic builds the section
        assert mongo[DATABASE].list_collection_names() == ["passengers"]
        assert (tmp_path / "bronze").exists()
    finally:
        mongo.drop_database(DATABASE)


def test_a_configured_server_is_named_and_a_user_who_may_not_write_is_one_line(tmp_path: Path) -> None:
    earlier = tmp_path / "lake" / "bronze" / "airline"
    earlier.mkdir(parents=True)
    console = a_console()
    with guarded_server(tmp_path, "s3cret") as (server, root):
        root.admin.command("createUser", "reader", pwd="s3cret", roles=["readAnyDatabase"])
        uri = uri_of(server, "reader", "s3cret")
        with pytest.raises(ConfigurationError, match=r"writing the demo's data.*unset MONGODB_URI") as refused:
            run_demo(Settings(source={"uri": uri}), lake=tmp_path / "lake", rows=10, console=console)  # type: ignore[arg-type]  # why: pydantic builds the section
        port = server.uri.partition("127.0.0.1:")[2].partition("/")[0]
    shown = console.file.getvalue()  # type: ignore[attr-defined]  # why: it is the StringIO of above
    assert f"127.0.0.1:{port}, gets a database airline" in shown
    assert "s3cret" not in shown + str(refused.value)
    assert earlier.exists(), "what an earlier demo left stays until this one can begin"


@pytest.mark.parametrize("rows", [0, -5])
def test_a_demo_of_zero_flights_is_refused(rows: int, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="make no demo"):
        run_demo(Settings(), lake=tmp_path / "demo", rows=rows, console=a_console())
