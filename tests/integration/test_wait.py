"""Wait: an application reads in bronze, silver or gold what it wrote to MongoDB."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from lake_place import PLACE
from lakehouse import COMPATIBILITY
from pymongo import MongoClient
from pymongo.database import Database
from without_java import source_of, strandline

from strandline import ConfigurationError, Lakehouse, RetriableError, connect

Db = Database[dict[str, Any]]
pytestmark = [
    pytest.mark.skipif(PLACE != "folder", reason="the lake is in the folder of the test"),
    pytest.mark.skipif(COMPATIBILITY == "native", reason="only Spark writes native tables"),
]
GOLD = {
    "each": "-- materialized: incremental\n-- keys: _id\nSELECT _id FROM silver.orders WHERE NOT _deleted",
    "counted": "-- materialized: table\nSELECT count(*) AS orders FROM gold.each",
    "shown": "SELECT orders FROM gold.counted",
}


def lakehouse_of(uri: str, database: Db, folder: Path) -> Lakehouse:
    return connect(
        folder,
        source={"name": "test", "uri": uri},
        capture={"scope": "database", "target": database.name},
        lake={"root": str(folder / "lake")},
        gold={"sql_dir": str(folder / "gold")} if (folder / "gold").exists() else {},
    )


def write(client: MongoClient[dict[str, Any]], database: Db, number: int) -> str:
    """Insert an order. Return the operation time of the session."""
    with client.start_session() as session:
        database.orders.insert_one({"_id": number}, session=session)
        assert session.operation_time is not None
        return f"{session.operation_time.time},{session.operation_time.inc}"


# scenario: R07
@pytest.mark.check
def test_each_layer_is_waited_for_without_java(
    mongo: MongoClient[dict[str, Any]], mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    lakehouse = lakehouse_of(mongo_uri, database, tmp_path)
    written = write(mongo, database, 1)
    with pytest.raises(RetriableError, match="bronze lacks events that the source has"):
        lakehouse.wait(written, layer="bronze", timeout_seconds=0)
    lakehouse.capture()
    assert lakehouse.wait(written, layer="bronze", timeout_seconds=0).versions.keys() == {"bronze.test"}
    with pytest.raises(RetriableError, match=r"silver lacks what bronze has → strandline silver, then again$"):
        lakehouse.wait(written, timeout_seconds=0)
    lakehouse.silver()
    arrival = lakehouse.wait(f"Timestamp({written})", timeout_seconds=0)
    assert (arrival.layer, arrival.cut, f"{arrival.until[0]},{arrival.until[1]}") == ("silver", 1, written)
    assert arrival.versions == {"silver.orders": arrival.versions["silver.orders"]}
    assert lakehouse.read("orders").num_rows == 1

    told = strandline(tmp_path, "wait", "--until", written, "--json", **settings(mongo_uri, database))
    assert (told.returncode, json.loads(told.stdout)["cut"]) == (0, 1)
    written = write(mongo, database, 2)
    late = strandline(tmp_path, "wait", "--timeout", "0", **settings(mongo_uri, database))
    assert (late.returncode, late.stdout) == (75, "")
    assert "strandline: bronze lacks events that the source has → " in late.stderr


def settings(uri: str, database: Db) -> dict[str, str]:
    return source_of(uri, database) | {"STRANDLINE_LAKE__ROOT": "lake"}


def test_a_source_without_new_events_has_arrived(mongo_uri: str, database: Db, tmp_path: Path) -> None:
    """The position in bronze does not move, or moves by heartbeats that silver does not store."""
    lakehouse = lakehouse_of(mongo_uri, database, tmp_path)
    database.orders.insert_one({"_id": 1})
    lakehouse.run()
    database.client[f"{database.name}-other"].elsewhere.insert_one({"_id": 1})
    first = lakehouse.wait(timeout_seconds=0)
    version = lakehouse.offsets().table_version
    database.client[f"{database.name}-other"].elsewhere.insert_one({"_id": 2})
    lakehouse.capture()
    assert lakehouse.offsets().table_version > version, "a heartbeat"
    second = lakehouse.wait(timeout_seconds=0)
    assert (second.cut, second.versions) == (first.cut, first.versions)
    database.client.drop_database(f"{database.name}-other")


def test_the_wait_ends_when_other_processes_have_done_the_work(mongo_uri: str, database: Db, tmp_path: Path) -> None:
    lakehouse, worker = (lakehouse_of(mongo_uri, database, tmp_path) for _ in range(2))
    database.orders.insert_one({"_id": 1})
    lakehouse.run()
    database.orders.insert_one({"_id": 2})

    def work() -> None:
        worker.capture()
        worker.silver()

    thread = threading.Timer(0.2, work)
    thread.start()
    arrival = lakehouse.wait(timeout_seconds=120)
    thread.join()
    assert (arrival.cut, lakehouse.read("orders").num_rows) == (2, 2)


@pytest.mark.usefixtures("spark")  # gold's SQL is Spark's
def test_gold_has_arrived_when_each_table_was_built_from_what_silver_has(
    mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    (tmp_path / "gold").mkdir()
    for name, query in GOLD.items():
        (tmp_path / "gold" / f"{name}.sql").write_text(query)
    lakehouse = lakehouse_of(mongo_uri, database, tmp_path)
    database.orders.insert_one({"_id": 1})
    lakehouse.run()
    assert lakehouse.wait(layer="gold", timeout_seconds=0).versions.keys() == {"gold.counted", "gold.each"}
    database.orders.insert_one({"_id": 2})
    lakehouse.capture()
    lakehouse.silver()
    with pytest.raises(RetriableError, match=r"gold\.each and 2 more are not built from what silver has"):
        lakehouse.wait(layer="gold", timeout_seconds=0)
    lakehouse.gold("each")
    with pytest.raises(RetriableError, match=r"gold\.counted and 1 more are"):
        lakehouse.wait(layer="gold", timeout_seconds=0)
    lakehouse.gold()
    lakehouse.wait(layer="gold", timeout_seconds=0)
    assert lakehouse.sql("SELECT orders FROM gold.counted").first()[0] == 2


def test_a_moment_is_now_an_operation_time_or_a_time_of_the_past(mongo_uri: str, database: Db, tmp_path: Path) -> None:
    lakehouse = lakehouse_of(mongo_uri, database, tmp_path)
    database.orders.insert_one({"_id": 1})
    lakehouse.run()
    present = lakehouse.wait().until
    assert lakehouse.wait(datetime.now(UTC).isoformat()).until >= present
    an_hour_ago = datetime.now(UTC) - timedelta(hours=1)
    assert lakehouse.wait(an_hour_ago.isoformat()).until == (int(an_hour_ago.timestamp()) + 1, 0)
    for future in ((datetime.now(UTC) + timedelta(hours=1)).isoformat(), f"{present[0] + 100},1"):
        with pytest.raises(ConfigurationError, match="lies in the source's future"):
            lakehouse.wait(future)
    for nonsense in ("yesterday", "1,2,3", ""):
        with pytest.raises(ConfigurationError, match="is no time"):
            lakehouse.wait(nonsense)
