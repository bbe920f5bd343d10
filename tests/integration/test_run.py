"""`strandline run --once`, as a timer or a job calls it: its exit code is all that they see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database
from pyspark.sql import SparkSession

from strandline.cli import app
from strandline.io.tables.spark_tables import Tables
from strandline.model.tables import Lake, TableName

NOTHING_YET = {
    (
        "gold",
    ): "no SQL files: write some into conf/gold, or name their folder in gold.sql_dir (strandline explain gold)",
    (
        "gold",
        "--plan",
    ): "no SQL files: write some into conf/gold, or name their folder in gold.sql_dir (strandline explain gold)",
    (
        "gold",
        "test",
    ): "no cases: write some into `tests` beside the SQL files, or name their folder in gold.tests_dir"
    " (strandline explain gold)",
    (
        "quality",
        "run",
    ): "no suites: write some into conf/quality, or name their folder in quality.suites_dir"
    " (strandline explain quality)",
}
GOLD = {
    "broken": "-- materialized: table\nselect raise_error('no') as a from silver.people",
    "fine": "-- materialized: table\nselect count(*) as people from silver.people",
    "waiting": "-- materialized: view\nselect * from silver.nobody",
}


@pytest.mark.usefixtures("signals_restored")
def test_a_gold_table_that_failed_shows_in_the_exit_code(
    spark: SparkSession,
    mongo_uri: str,
    database: Database[dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database.people.insert_one({"_id": 1})
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "base.yml").write_text(
        f"capture: {{scope: database, target: {database.name}, engine: native}}\ngold: {{sql_dir: {tmp_path}}}",
        encoding="utf-8",
    )
    for name, sql in GOLD.items():
        (tmp_path / f"{name}.sql").write_text(sql, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STRANDLINE_SOURCE__URI", mongo_uri)
    assert app(["run", "--once"], standalone_mode=False) == 1
    assert Tables(spark, Lake(root="lake")).read(TableName("gold", "fine")).count() == 1, "all else is done"
    (tmp_path / "broken.sql").unlink()
    assert app(["run", "--once"], standalone_mode=False) in (None, 0), "what waits for a table has not failed"


@pytest.mark.usefixtures("signals_restored", "spark")
def test_a_project_without_gold_runs_silently_and_the_gold_command_says_how_to_write_a_node(
    mongo_uri: str,
    database: Database[dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    database.people.insert_one({"_id": 1})
    (tmp_path / "conf").mkdir()
    base = f"capture: {{scope: database, target: {database.name}, engine: native}}"
    (tmp_path / "conf" / "base.yml").write_text(base, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STRANDLINE_SOURCE__URI", mongo_uri)
    assert app(["run", "--once"], standalone_mode=False) in (None, 0)
    said = caplog.text + capsys.readouterr().out
    assert [word for word in ("gold", "quality", "expectation", "flights") if word in said] == []
    for command, advice in NOTHING_YET.items():
        assert app(list(command), standalone_mode=False) in (None, 0)
        assert capsys.readouterr().out.split("\n") == [advice, ""]
