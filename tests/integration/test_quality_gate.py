"""Life of a bad batch: quarantined, gate closed, corrected, released."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from lakehouse import pipeline
from pymongo.collection import Collection
from pymongo.database import Database
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from strandline.errors import QualityGateClosed
from strandline.gold.query import query
from strandline.jobs.context import JobContext
from strandline.jobs.gold.planned import graph_of, plan_gold
from strandline.jobs.gold.quality import replay_quarantine
from strandline.jobs.gold.refresh import refresh_gold
from strandline.jobs.operations.sql import run_sql
from strandline.jobs.operations.status import quarantined_rows
from strandline.jobs.run import run_once
from strandline.model.table_schemas import QUALITY
from strandline.model.tables import TableName

SQL = "-- materialized: incremental\n-- keys: carrier\nselect carrier, count(*) as flights, sum(distance) as distance\n"
SQL += "from silver.flights where not _deleted group by carrier"
ROWS = """table: silver.flights
where: NOT _deleted
rows: changed
on_failure: quarantine
expectations:
  - {type: expect_column_values_to_be_between, column: distance, min_value: 1}
  - {type: expect_column_values_to_be_in_set, column: carrier, value_set: [AA, UA%s]}"""
DOUBLED = """table: silver.flights
where: NOT _deleted
on_failure: quarantine
expectations: [{type: expect_compound_columns_to_be_unique, column_list: [carrier, flight, day]}]"""
WHOLE = """table: silver.flights
on_failure: block
expectations: [{type: expect_table_to_be_fresh, column: loaded_at, max_age: 1h}]"""
BETWEEN, IN_SET = "expect_column_values_to_be_between", "expect_column_values_to_be_in_set"
UNIQUE = "expect_compound_columns_to_be_unique"


def _write(folder: Path, **texts: str) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / name.replace("_yml", ".yml").replace("_sql", ".sql")).write_text(text, encoding="utf-8")


def _flight(number: int, **fields: Any) -> dict[str, Any]:
    loaded = {"loaded_at": datetime.now(UTC)}
    return {"_id": number, "carrier": "UA", "flight": number, "day": "2013-01-01", "distance": 100, **loaded, **fields}


def _run(ctx: JobContext) -> None:
    run_once(ctx, lambda: ctx, report=lambda *_: None, silver_report=lambda _: None)


def _gold(ctx: JobContext) -> dict[str, tuple[int, int]]:
    return {
        row["carrier"]: (row["flights"], row["distance"])
        for row in run_sql(ctx, "select * from gold.by_carrier").collect()
    }


def _held(ctx: JobContext) -> dict[str, list[str]]:
    rows = run_sql(ctx, "select _key, reasons from silver.flights_quarantine order by _key").collect()
    return {row["_key"]: [reason.split("(")[0] for reason in row["reasons"]] for row in rows}


@dataclass
class Gate:
    """A pipeline with suites and one incremental gold table, after a good day and a broken batch."""

    ctx: JobContext
    flights: Collection[dict[str, Any]]
    suites: Path
    good_day: dict[str, tuple[int, int]]
    """Gold after the good day."""

    def actions(self) -> list[str]:
        """Return what the next build of gold would do."""
        return [planned.action for planned in plan_gold(self.ctx)]


@pytest.fixture
def gate(spark: SparkSession, mongo_uri: str, database: Database[dict[str, Any]], tmp_path: Path) -> Gate:
    base = pipeline(spark, mongo_uri, database.name, tmp_path / "lake")
    quality = base.settings.quality.model_copy(
        update={"suites_dir": str(tmp_path / "quality"), "docs_dir": str(tmp_path / "docs")}
    )
    gold = base.settings.gold.model_copy(update={"sql_dir": str(tmp_path / "sql")})
    ctx = replace(base, settings=base.settings.model_copy(update={"quality": quality, "gold": gold}))
    _write(tmp_path / "quality", rows_yml=ROWS % "", doubled_yml=DOUBLED, whole_yml=WHOLE)
    _write(tmp_path / "sql", by_carrier_sql=SQL)
    database.flights.insert_many([_flight(1), _flight(2, carrier="AA"), _flight(3)])
    _run(ctx)
    good_day = _gold(ctx)
    database.flights.update_one({"_id": 3}, {"$set": {"distance": -1}})
    database.flights.insert_many([_flight(4, carrier="XX"), _flight(5, flight=1), _flight(6)])
    _run(ctx)
    return Gate(ctx, database.flights, tmp_path / "quality", good_day)


# scenario: T01
@pytest.mark.long
def test_bad_rows_are_quarantined_with_their_reason_and_good_ones_reach_gold(gate: Gate) -> None:
    assert gate.good_day == {"UA": (2, 200), "AA": (1, 100)}
    assert _held(gate.ctx) == {"1": [UNIQUE], "3": [BETWEEN], "4": [IN_SET], "5": [UNIQUE]}
    assert _gold(gate.ctx) == {"UA": (1, 100), "AA": (1, 100)}
    assert gate.actions() == ["unchanged"]
    assert run_sql(gate.ctx, "select count(*) from silver.flights where not _deleted").first() == (6,)
    checked = gate.ctx.tables.read(QUALITY).where("suite = 'rows'").orderBy(F.desc("ran_at")).first()
    assert checked is not None
    assert (checked["scope"], checked["version_from"] < checked["table_version"]) == ("changed", True)
    assert checked["position_from"] <= checked["position_to"]


@pytest.mark.long
def test_a_closed_gate_holds_gold_until_the_source_is_corrected_and_rows_that_pass_return(gate: Gate) -> None:
    gate.flights.update_many({}, {"$set": {"loaded_at": datetime(2013, 1, 1, tzinfo=UTC)}})  # a file is late
    gate.flights.update_one({"_id": 3}, {"$set": {"distance": 50}})  # a correction that waits behind the gate
    with pytest.raises(
        QualityGateClosed, match=r"expect_table_to_be_fresh\(loaded_at\) failed newest 2013-01-01"
    ) as closed:
        _run(gate.ctx)
    assert closed.value.exit_code == 5
    assert _gold(gate.ctx) == {"UA": (1, 100), "AA": (1, 100)}
    assert gate.actions() == ["incremental"]

    gate.flights.insert_one(_flight(7))  # the file arrives
    gate.flights.delete_one({"_id": 5})  # the doubled flight
    _run(gate.ctx)
    assert _held(gate.ctx) == {"4": [IN_SET]}
    assert _gold(gate.ctx) == {"UA": (4, 350), "AA": (1, 100)}


@pytest.mark.long
def test_replay_after_a_corrected_suite_returns_a_row_to_gold_without_a_change_of_silver(gate: Gate) -> None:
    gate.flights.update_one({"_id": 3}, {"$set": {"distance": 50}})
    gate.flights.delete_one({"_id": 5})
    _run(gate.ctx)
    version = gate.ctx.tables.version(TableName("silver", "flights"))
    replay_quarantine(gate.ctx)
    assert quarantined_rows(gate.ctx) == {"silver.flights": 1}
    assert gate.actions() == ["unchanged"], "a row that is held as before is no news"
    _write(gate.suites, rows_yml=ROWS % ", XX")
    replay_quarantine(gate.ctx)
    assert quarantined_rows(gate.ctx) == {"silver.flights": 0}
    (result,) = refresh_gold(gate.ctx)
    assert result.reason.startswith("incremental: silver.flights_quarantine changed")
    assert _gold(gate.ctx) == {"UA": (3, 250), "AA": (1, 100), "XX": (1, 100)}
    assert gate.ctx.tables.version(TableName("silver", "flights")) == version
    whole = query(gate.ctx.tables, graph_of(gate.ctx.settings.gold), SQL.split("\n", 2)[2]).collect()
    assert {row["carrier"]: (row["flights"], row["distance"]) for row in whole} == _gold(gate.ctx)
