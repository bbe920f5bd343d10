from __future__ import annotations

import random
from collections import Counter
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from chispa import assert_df_equality

from strandline.gold.build_plan import plan
from strandline.gold.graph import Graph, parse
from strandline.gold.publish import publish
from strandline.gold.query import query
from strandline.gold.results import GoldResult
from strandline.gold.small_merge import SmallTable
from strandline.io.spark.races import OvertakenError
from strandline.io.tables.ddl import schema_of
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.io.tables.spark_tables import Tables
from strandline.model.quarantine import QUARANTINE_DDL, quarantine_of, quarantine_properties
from strandline.model.tables import TableName

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


@pytest.fixture(params=["few keys without Spark", pytest.param("Spark", marks=pytest.mark.long)])
def here(request: pytest.FixtureRequest, tables: Tables) -> DeltaRsTables | None:
    return None if request.param == "Spark" else DeltaRsTables(tables.lake)


def _step(tables: Tables, here: DeltaRsTables | None) -> dict[str, GoldResult]:
    """Plan, build, and compare every incremental table with its query."""
    graph = _graph()
    planned = {item.name: item.action for item in plan(tables, graph)}
    results = {result.name: result for result in publish(tables, graph, max_threads=3, native=here)}
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


def test_after_any_change_of_inputs_an_incremental_table_equals_a_full_build(
    tables: Tables, here: DeltaRsTables | None
) -> None:
    _lake(tables)
    assert {result.reason for result in _step(tables, here).values()} == {"full: first build"}

    # one row moves, one goes, one comes: three carriers, of which AA falls out of the result and NULL comes in
    _sql(tables, "UPDATE {0} SET carrier = 'UA', delay = 9 WHERE _key = '3'", "DELETE FROM {0} WHERE _key = '2'")
    _sql(tables, "INSERT INTO {0} VALUES ('6', NULL, 0, false), ('7', 'DL', 4, true)")
    results = _step(tables, here)
    assert _how(results) == {"by_carrier": "incremental", "flights": "incremental", "top": "full"}
    assert (
        results["flights"].rows == 3
    )  # 2 deleted, 3 updated, 7 inserted; 6 is filtered out, 1, 4 and 5 were not touched
    assert "silver.flights changed, version " in results["flights"].reason

    tables.set_properties(FLIGHTS, {"strandline.note": "no row changed"})
    _sql(tables, "OPTIMIZE {0}")
    assert {result.status for result in _step(tables, here).values()} == {"unchanged"}

    _sql(tables, "UPDATE {1} SET name = 'United Airlines'")
    results = _step(tables, here)
    assert results["by_carrier"].reason.startswith("full: silver.airlines changed, version ")
    assert results["by_carrier"].reason.endswith(", and the keys come from silver.flights")
    assert results["flights"].status == "unchanged"

    # a row in quarantine is not there for gold, and comes back when it leaves
    tables.create(quarantine_of(FLIGHTS), schema_of(QUARANTINE_DDL), properties=quarantine_properties(FLIGHTS))
    _sql(tables, "INSERT INTO {2} (_key, suite) VALUES ('1', 's')", "UPDATE {0} SET delay = 99 WHERE _key = '1'")
    results = _step(tables, here)
    assert _how(results) == {"by_carrier": "incremental", "flights": "incremental", "top": "full"}
    assert [row["id"] for row in tables.read(TableName("gold", "flights")).where("id = '1'").collect()] == []
    _sql(tables, "DELETE FROM {2}")
    assert _how(_step(tables, here))["flights"] == "incremental"
    assert [row["delay"] for row in tables.read(TableName("gold", "flights")).where("id = '1'").collect()] == [99]


def test_a_query_that_reads_the_quarantine_itself_is_built_whole_when_a_row_is_held(tables: Tables) -> None:
    _lake(tables)
    tables.create(quarantine_of(FLIGHTS), schema_of(QUARANTINE_DDL), properties=quarantine_properties(FLIGHTS))
    sql = """-- materialized: incremental
-- keys: carrier
select carrier, count(*) as flights, (select count(*) from silver.flights_quarantine) as held
from silver.flights group by carrier"""
    graph = parse({"held.sql": sql})
    publish(tables, graph)
    _sql(tables, "INSERT INTO {2} (_key, suite) VALUES ('1', 's')")
    (result,) = publish(tables, graph)
    assert result.reason.startswith("full: silver.flights_quarantine changed"), result.reason
    rows = tables.read(TableName("gold", "held")).collect()
    assert {(row["carrier"], row["flights"], row["held"]) for row in rows} == {("UA", 1, 1), ("AA", 2, 1), (None, 1, 1)}
    _sql(tables, "UPDATE {0} SET delay = 8 WHERE _key = '2'")
    (result,) = publish(tables, graph)
    assert result.reason.startswith("incremental: "), result.reason


@pytest.mark.long
def test_a_build_that_cannot_be_incremental_is_full_with_its_reason(tables: Tables, here: DeltaRsTables | None) -> None:
    _lake(tables)
    _step(tables, here)
    changed = parse({"flights.sql": "-- materialized: incremental\n-- keys: id\n" + QUERIES["flights"] + " and true"})
    assert [result.reason for result in publish(tables, changed, native=here)] == ["full: its SQL or header changed"]

    changes, older = Path(tables.lake.path(FLIGHTS)) / "_change_data", set[Path]()
    for which in ("_key = '1'", "true"):
        _sql(tables, f"UPDATE {{0}} SET delay = delay WHERE {which}")
        older = older or set(changes.rglob("*.parquet"))
    for file in older:  # as VACUUM does
        file.unlink()
    (result,) = publish(tables, changed, native=here)
    assert (result.status, "its changes cannot be read" in result.reason) == ("built", True), result.reason

    version = tables.version(FLIGHTS)
    _sql(
        tables,
        "INSERT INTO {0} VALUES ('8', 'UA', 1, false)",
        "ALTER TABLE {0} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false')",
    )
    _sql(tables, "DELETE FROM {0} WHERE _key = '1'")
    (result,) = publish(tables, changed, native=here)
    assert result.reason.startswith("full: silver.flights changed")
    assert "its changes cannot be read" in result.reason
    assert {row["id"] for row in tables.read(TableName("gold", "flights")).collect()} == {"2", "3", "4", "5", "8"}
    (result,) = publish(tables, changed, versions={FLIGHTS: version}, native=here)
    assert result.reason.startswith("full: silver.flights went back from version")
    assert {row["id"] for row in tables.read(TableName("gold", "flights")).collect()} == {"1", "2", "3", "4", "5"}

    alike = parse(
        {"doubled.sql": "-- materialized: incremental\n-- keys: carrier\nselect carrier, delay from silver.flights"}
    )
    (result,) = publish(tables, alike, native=here)
    assert (result.status, "keys: carrier do not identify a row of gold.doubled" in result.reason) == (
        "failed",
        True,
    ), result.reason
    assert not tables.exists(TableName("gold", "doubled"))


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


SOURCE = TableName("silver", "sales")
COLUMNS = "_key STRING, shop STRING, day DATE, at TIMESTAMP, price DECIMAL(9,2), tags ARRAY<STRUCT<t STRING>>"
REVENUE = (
    "-- materialized: incremental\n-- keys: Shop, day\nselect shop as Shop, day, max(at) as last, sum(price) as sum, "
    "count(*) as n, max_by(tags, _key) as tags, sum(double(price)) / 3 as third from silver.sales group by shop, day"
)


@pytest.mark.check
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_few_keys_are_merged_without_spark_as_spark_merges_them(
    tables: Tables, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    graphs = [
        (parse({f"{name}.sql": REVENUE}), here) for name, here in (("a", DeltaRsTables(tables.lake)), ("b", None))
    ]
    feed_on = {"delta.enableChangeDataFeed": "true"}
    tables.create(SOURCE, schema_of(COLUMNS), properties=feed_on)
    for turn in range(4):
        _sell(tables, chance, everything_goes=turn == 2)
        for graph, here in graphs:
            (result,) = publish(tables, graph, native=here)
            assert (result.status, result.reason.split(":")[0]) == ("built", "full" if turn == 0 else "incremental")
        if turn == 0:
            continue
        own, by_spark = (_rows_and_changes(tables, TableName("gold", name)) for name in ("a", "b"))
        assert own == by_spark
        newest = tables.history(TableName("gold", "a"), 3)
        (merge,) = [commit for commit in newest if commit.operation == "MERGE"]
        assert (merge.engine or "").startswith("delta-rs")
        assert merge.metrics["numTargetRowsDeleted"] == str(own[2]["delete"])
        monkeypatch.setattr("strandline.io.delta_log.mergeable_table._MANY_FILES", 1 + turn)
        assert {result.status for graph, here in graphs for result in publish(tables, graph, native=here)} == {
            "unchanged"
        }


def _sell(tables: Tables, chance: random.Random, *, everything_goes: bool) -> None:
    sales = tables.lake.sql(SOURCE)
    if everything_goes:
        tables.spark.sql(f"DELETE FROM {sales}")
        return
    rows = [
        (
            *(f"{chance.randrange(10**6)}", chance.choice(["north", "South", "", None])),
            *(
                chance.choice([None, date(2026, 3, 29), date(1890, 1, 1)]),
                datetime(2026, 10, 25, chance.randrange(9), 30),
            ),
            *(Decimal(chance.randrange(10**5)) / 100, chance.choice([None, [], [("x",), (None,)]])),
        )
        for _ in range(12)
    ]
    tables.spark.createDataFrame(rows, schema_of(COLUMNS)).write.format("delta").mode("append").save(
        tables.lake.path(SOURCE)
    )
    tables.spark.sql(f"DELETE FROM {sales} WHERE shop = '{chance.choice(['north', 'South'])}'")
    tables.spark.sql(f"UPDATE {sales} SET price = price + 1, day = NULL WHERE cast(_key AS INT) % 5 = 0")


def _rows_and_changes(tables: Tables, table: TableName) -> tuple[list[str], list[str], Counter[str]]:
    """Return the rows, the changes of the newest version with rows, and numbers of its changes by type."""
    rows = sorted(map(str, tables.read(table).collect()))
    feed = tables.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1)
    changes = feed.load(tables.lake.path(table)).drop("_commit_timestamp").collect()  # 0: built
    last = max(row["_commit_version"] for row in changes)
    newest = [row.asDict() for row in changes if row["_commit_version"] == last]
    told = sorted(str({name: value for name, value in row.items() if name != "_commit_version"}) for row in newest)
    return rows, told, Counter(row["_change_type"] for row in newest)


def test_a_table_that_only_spark_can_change_is_merged_by_spark(tables: Tables) -> None:
    _lake(tables)
    here = DeltaRsTables(tables.lake)
    graph = parse(
        {
            "f.sql": "-- materialized: incremental\n-- keys: delay\nselect double(delay) as delay, count(*) as n "
            "from silver.flights group by double(delay)"
        }
    )
    publish(tables, graph, native=here)
    _sql(tables, "UPDATE {0} SET delay = 6 WHERE _key = '3'")
    assert SmallTable.open(here, TableName("gold", "f"), ["delay"]) is None  # NaN is equal to NaN in Spark only
    (result,) = publish(tables, graph, native=here)
    assert (result.status, result.reason.split(":")[0], result.rows) == ("built", "incremental", 2)


def test_a_merge_that_another_commit_overtakes_changes_nothing(tables: Tables) -> None:
    _lake(tables)
    here = DeltaRsTables(tables.lake)
    publish(tables, _graph(), native=here)
    table = TableName("gold", "by_carrier")
    small = SmallTable.open(here, table, ["carrier"])
    assert small is not None
    rows = tables.read(table).toArrow()
    tables.set_properties(table, {"strandline.note": "a rival"})
    with pytest.raises(OvertakenError, match="another process has changed"):
        small.merge(rows.select(["carrier"]), rows.slice(0, 0))
    assert tables.read(table).count() == rows.num_rows
