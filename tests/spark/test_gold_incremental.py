from __future__ import annotations

from pathlib import Path

import pytest
from chispa import assert_df_equality

from pipelines.gold.build_plan import plan
from pipelines.gold.graph import Graph, parse
from pipelines.gold.publish import GoldResult, publish
from pipelines.gold.query import query
from pipelines.io.ddl import schema_of
from pipelines.io.tables import Tables
from pipelines.model.quarantine import QUARANTINE_DDL, quarantine_of, quarantine_properties
from pipelines.model.tables import TableName

FLIGHTS, AIRLINES = TableName("silver", "flights"), TableName("silver", "airlines")
QUERIES = {
    "by_carrier": """with f as (select carrier, delay, _deleted from silver.flights where not _deleted)
        select f.carrier, any_value(a.name) as airline, count(*) as flights, sum(f.delay) as delay
        from f left join silver.airlines a on a._id = f.carrier group by f.carrier having count(*) > 1""",
    "flights": """select _key as id, carrier, delay, rank() over (partition by _key order by delay) as place
        from silver.flights where delay > 0""",
}
KEYS = {"by_carrier": "carrier", "flights": "id"}
VIEWS = parse({f"{name}.sql": sql for name, sql in QUERIES.items()})


def _graph() -> Graph:
    files = {
        f"{name}.sql": f"-- materialized: incremental\n-- keys: {KEYS[name]}\n{sql}" for name, sql in QUERIES.items()
    }
    return parse(
        {
            **files,
            "top.sql": "-- materialized: table\nselect carrier, delay from gold.by_carrier order by delay limit 1",
        }
    )


def _lake(tables: Tables) -> None:
    for table, columns in (
        (FLIGHTS, "_key STRING, carrier STRING, delay INT, _deleted BOOLEAN"),
        (AIRLINES, "_id STRING, name STRING"),
    ):
        tables.create(table, schema_of(columns), properties={"delta.enableChangeDataFeed": "true"})
    _sql(
        tables,
        "INSERT INTO {0} VALUES ('1','UA',5,false),('2','UA',7,false),('3','AA',1,false),"
        "('4','AA',2,false),('5',NULL,3,false)",
    )
    _sql(tables, "INSERT INTO {1} VALUES ('UA','United')")


def _sql(tables: Tables, *statements: str) -> None:
    for statement in statements:
        tables.spark.sql(
            statement.format(
                tables.lake.sql(FLIGHTS), tables.lake.sql(AIRLINES), tables.lake.sql(quarantine_of(FLIGHTS))
            )
        )


def _step(tables: Tables) -> dict[str, GoldResult]:
    """Plan, build, and compare every incremental table with its query."""
    graph = _graph()
    planned = {item.name: item.action for item in plan(tables, graph)}
    results = {result.name: result for result in publish(tables, graph, max_threads=3)}
    done = {
        name: result.reason.split(":")[0] if result.status == "built" else result.status
        for name, result in results.items()
    }
    assert {name: action for name, action in done.items() if name != "top"} == {
        name: action for name, action in planned.items() if name != "top"
    }
    for name in QUERIES:
        expected = query(tables, VIEWS, f"select * from gold.{name}")
        assert_df_equality(tables.read(TableName("gold", name)), expected, ignore_nullable=True, ignore_row_order=True)
    return results


def _how(results: dict[str, GoldResult]) -> dict[str, str]:
    return {name: result.reason.split(":")[0] for name, result in results.items()}


def test_an_incremental_table_equals_a_full_build_whatever_happens_to_its_inputs(tables: Tables) -> None:
    _lake(tables)
    assert {result.reason for result in _step(tables).values()} == {"full: first build"}

    # one row moves, one goes, one comes: three carriers, of which AA falls out of the result and NULL comes in
    _sql(tables, "UPDATE {0} SET carrier = 'UA', delay = 9 WHERE _key = '3'", "DELETE FROM {0} WHERE _key = '2'")
    _sql(tables, "INSERT INTO {0} VALUES ('6', NULL, 0, false), ('7', 'DL', 4, true)")
    results = _step(tables)
    assert _how(results) == {"by_carrier": "incremental", "flights": "incremental", "top": "full"}
    assert (
        results["flights"].rows == 3
    )  # 2 deleted, 3 updated, 7 inserted; 6 is filtered out, 1, 4 and 5 were not touched
    assert "silver.flights changed, version " in results["flights"].reason

    tables.set_properties(FLIGHTS, {"strandline.note": "no row changed"})
    _sql(tables, "OPTIMIZE {0}")
    assert {result.status for result in _step(tables).values()} == {"unchanged"}

    _sql(tables, "UPDATE {1} SET name = 'United Airlines'")
    results = _step(tables)
    assert results["by_carrier"].reason.startswith("full: silver.airlines changed, version ")
    assert results["by_carrier"].reason.endswith(", and the keys come from silver.flights")
    assert results["flights"].status == "unchanged"

    # a row in quarantine is not there for gold, and comes back when it leaves
    tables.create(quarantine_of(FLIGHTS), schema_of(QUARANTINE_DDL), properties=quarantine_properties(FLIGHTS))
    _sql(tables, "INSERT INTO {2} (_key, suite) VALUES ('1', 's')", "UPDATE {0} SET delay = 99 WHERE _key = '1'")
    results = _step(tables)
    assert _how(results) == {"by_carrier": "incremental", "flights": "incremental", "top": "full"}
    assert [row["id"] for row in tables.read(TableName("gold", "flights")).where("id = '1'").collect()] == []
    _sql(tables, "DELETE FROM {2}")
    assert _how(_step(tables))["flights"] == "incremental"
    assert [row["delay"] for row in tables.read(TableName("gold", "flights")).where("id = '1'").collect()] == [99]


@pytest.mark.long
def test_what_cannot_be_built_from_changes_is_built_whole_and_says_why(tables: Tables) -> None:
    _lake(tables)
    _step(tables)
    changed = parse({"flights.sql": "-- materialized: incremental\n-- keys: id\n" + QUERIES["flights"] + " and true"})
    assert [result.reason for result in publish(tables, changed)] == ["full: its SQL or header changed"]

    changes, older = Path(tables.lake.path(FLIGHTS)) / "_change_data", set[Path]()
    for which in ("_key = '1'", "true"):
        _sql(tables, f"UPDATE {{0}} SET delay = delay WHERE {which}")
        older = older or set(changes.rglob("*.parquet"))
    for file in older:  # as VACUUM does
        file.unlink()
    (result,) = publish(tables, changed)
    assert (result.status, "its changes cannot be read" in result.reason) == ("built", True), result.reason

    version = tables.version(FLIGHTS)
    _sql(
        tables,
        "INSERT INTO {0} VALUES ('8', 'UA', 1, false)",
        "ALTER TABLE {0} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false')",
    )
    _sql(tables, "DELETE FROM {0} WHERE _key = '1'")
    (result,) = publish(tables, changed)
    assert result.reason.startswith("full: silver.flights changed")
    assert "its changes cannot be read" in result.reason
    assert {row["id"] for row in tables.read(TableName("gold", "flights")).collect()} == {"2", "3", "4", "5", "8"}
    (result,) = publish(tables, changed, versions={FLIGHTS: version})
    assert result.reason.startswith("full: silver.flights went back from version")
    assert {row["id"] for row in tables.read(TableName("gold", "flights")).collect()} == {"1", "2", "3", "4", "5"}

    alike = parse(
        {"doubled.sql": "-- materialized: incremental\n-- keys: carrier\nselect carrier, delay from silver.flights"}
    )
    (result,) = publish(tables, alike)
    assert (result.status, "keys: carrier do not identify a row of gold.doubled" in result.reason) == (
        "failed",
        True,
    ), result.reason
    assert tables.read(TableName("gold", "doubled")).count() == 0


def test_comments_are_carried_and_what_changes_by_itself_is_always_built(tables: Tables) -> None:
    _lake(tables)
    sql = (
        "-- materialized: table\n-- column carrier: IATA code,\n--   two letters\n"
        "select carrier, current_date() as day from silver.flights"
    )
    graph = parse(
        {"t.sql": sql, "wrong.sql": "-- materialized: table\n-- column carier: x\nselect carrier from silver.flights"}
    )
    for reason in ("full: first build", "full: current_date() changes by itself"):
        results = {result.name: result for result in publish(tables, graph)}
        assert results["t"].reason == reason
    assert "there is no column carier (did you mean carrier?)" in results["wrong"].reason
    fields = tables.read(TableName("gold", "t")).schema.fields
    assert [field.metadata.get("comment") for field in fields] == ["IATA code, two letters", None]
