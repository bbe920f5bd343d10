"""A lake of an older format and the MongoDB that fed it, met by today's `run --once`: it ends equal to its source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from lakehouse import assert_equal_to_source, bronze
from older_lakes import commits, unpack
from pydantic import SecretStr
from pymongo import MongoClient
from pyspark.sql import SparkSession

from strandline.cli import app
from strandline.io.tables import Tables
from strandline.jobs.context import JobContext
from strandline.model.lake_format import FORMAT, format_of
from strandline.model.tables import Lake, TableName
from strandline.settings.configuration import Settings
from strandline.source.mongod import EmbeddedMongod

TABLES = {
    "orders": "orders",
    "patched": "patched",
    "people": "people",
    "new_name": "new_name",
    "gone": "gone",
    "capped": "capped",
}


# scenario: E12, S08
@pytest.mark.usefixtures("signals_restored")
@pytest.mark.long
def test_run_once_on_a_lake_of_the_first_format_ends_equal_to_its_source(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = unpack(0, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MONGODB_URI", raising=False)
    with EmbeddedMongod(data_dir=tmp_path / "mongod") as server, MongoClient[dict[str, Any]](server.uri) as client:
        monkeypatch.setenv("STRANDLINE_SOURCE__URI", server.uri)
        before = commits(lake)
        for verb in (
            ["doctor"],
            ["status"],
            ["offsets", "show"],
            ["cuts", "list"],
            ["sql", "select count(*) from silver.orders"],
        ):
            assert app(verb, standalone_mode=False) in (None, 0), verb
        assert commits(lake) == before, "verbs that read work on the older lake, and write nothing"
        assert "brings" in capsys.readouterr().out
        assert app(["run", "--once"], standalone_mode=False) in (None, 0)
        sections = yaml.safe_load((tmp_path / "conf" / "base.yml").read_text("utf-8"))
        settings = Settings(**sections | {"source": {"name": "shop", "uri": SecretStr(server.uri)}})
        ctx = JobContext(settings, spark, Tables(spark, Lake(root=str(lake))))
        assert_equal_to_source(ctx, client.shop, *TABLES)
        positions = [
            row[0]
            for row in bronze(ctx).where("batch IS NOT NULL AND position IS NOT NULL").select("position").collect()
        ]
        assert len(positions) == len(set(positions)), "the stream went on where the older release had ended"
        people = list(
            client.shop.people.aggregate(
                [{"$group": {"_id": "$city", "people": {"$sum": 1}, "years": {"$sum": "$age"}}}]
            )
        )
        gold = {
            row["city"]: (row["people"], row["years"])
            for row in ctx.tables.read(TableName("gold", "by_city")).collect()
        }
        held = 1  # one row of Rome is in quarantine: its age is below zero
        assert gold == {
            row["_id"]: (row["people"] - held, row["years"] + held)
            if row["_id"] == "Rome"
            else (row["people"], row["years"])
            for row in people
        }
        for layer in ("bronze", "silver", "control", "gold"):
            assert {format_of(ctx.tables.properties(table)) for table in ctx.tables.names(layer)} == {FORMAT}, layer
        after = commits(lake)
        assert app(["run", "--once"], standalone_mode=False) in (None, 0)
        idle = {table for table, number in commits(lake).items() if number != after[table]}
        quality = {"control.quality", "silver.people_quarantine"}  # the gate checks all rows again, and records that
        assert idle <= {"bronze.shop", "control.cuts", *quality}, "what was migrated is not migrated again"
