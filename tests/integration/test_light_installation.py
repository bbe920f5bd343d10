"""The first hour after `pip install strandline`: no package of Spark and no Java."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pymongo.database import Database
from without_packages import without_packages

Db = Database[dict[str, Any]]


def printed(done: subprocess.CompletedProcess[str]) -> str:
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    return done.stdout


@pytest.fixture
def project(mongo_uri: str, database: Db, tmp_path: Path) -> Path:
    """A project that `init` has written for the database."""
    database["orderLines"].insert_many([{"_id": number, "state": "open", "lines": [{}]} for number in range(50)])
    done = printed(without_packages(tmp_path, "init", "shop", "--uri", mongo_uri, "--database", database.name))
    assert done.splitlines()[-3:] == [
        "next     cd shop",
        "         strandline run --once",
        "         strandline sql 'select * from silver.orderLines limit 10'",
    ]
    assert "left out a gold view and checks, which need Spark: pip install" in done
    return tmp_path / "shop"


def test_four_commands_lead_to_a_typed_table(project: Path, database: Db) -> None:
    assert "50 documents" in printed(without_packages(project, "run", "--once"))
    database["orderLines"].update_many({"_id": {"$lt": 9}}, {"$set": {"state": "sent", "lines": [{"sku": "a"}]}})
    database["orderLines"].delete_one({"_id": 49})
    assert "10 changes" in printed(without_packages(project, "run", "--once"))
    query = "select state, count(*) as n from silver.orderLines where not _deleted group by state order by state"
    rows = json.loads(printed(without_packages(project, "sql", query, "--json")))
    assert rows == [{"state": "open", "n": 40}, {"state": "sent", "n": 9}]
    (row,) = json.loads(
        printed(without_packages(project, "sql", "select * from silver.orderLines where _id = 8", "--json"))
    )
    assert (row["lines"], row["_rescued"]) == ([{"sku": "a"}], None)
    for command in ("status", "doctor --offline", "schema show", "cuts list"):
        printed(without_packages(project, *command.split()))


def test_silver_is_complete_before_gold_and_spark_are_missed(project: Path, database: Db) -> None:
    gold = project / "conf" / "gold"
    gold.mkdir()
    (gold / "open.sql").write_text("select count(*) as n from silver.orderLines where state = 'open'\n")
    done = without_packages(project, "run", "--once")
    (line,) = (each for each in done.stderr.splitlines() if each.startswith("strandline: "))
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert line.startswith("strandline: gold and the checks of tables need pyspark, which is not installed; bronze and")
    assert "[spark]" in line
    (table,) = (project / "lake" / "silver").iterdir()
    assert DeltaTable(str(table)).to_pyarrow_dataset().count_rows() == 50
    (gold / "open.sql").unlink()
    database.drop_collection("orderLines")  # tombstones of a drop are Spark's
    done = without_packages(project, "run", "--once")
    assert done.returncode == 2
    assert "strandline: pyspark is not installed, and this command needs it → pip install" in done.stderr
