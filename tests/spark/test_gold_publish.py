from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession

from strandline.demo.files import GOLD
from strandline.errors import ConfigurationError
from strandline.gold.graph import parse
from strandline.gold.publish import publish
from strandline.gold.query import query
from strandline.gold.sql_files import load_graph
from strandline.io.spark.spark_versions import minor_of
from strandline.io.tables.spark_tables import Tables
from strandline.model.tables import Lake, TableName

FLIGHTS = """_id STRING, carrier STRING, tailnum STRING, origin STRING, status STRING,
    scheduled STRUCT<departure: TIMESTAMP>,
    delay STRUCT<departure: INT, arrival: INT>, _deleted BOOLEAN"""
WEATHER = """_id STRUCT<origin: STRING, time: TIMESTAMP>, temp DOUBLE, precip DOUBLE, visib DOUBLE, wind_speed DOUBLE,
    _deleted BOOLEAN"""
PLANES = "_id STRING, year INT, manufacturer STRING, seats INT, _deleted BOOLEAN"
MORNING = datetime(2013, 1, 1, 10, 15, tzinfo=UTC)
HOUR = datetime(2013, 1, 1, 10, tzinfo=UTC)


def _silver(tables: Tables, name: str, rows: list[tuple[object, ...]], schema: str) -> None:
    tables.replace(TableName("silver", name), tables.spark.createDataFrame(rows, schema))


def _airline(tables: Tables) -> None:
    when = (MORNING,)
    _silver(
        tables,
        "flights",
        [
            ("1", "UA", "N1", "EWR", "arrived", when, (10, 14), False),
            ("2", "UA", "N2", "EWR", "arrived", when, (20, 15), False),
            ("3", "UA", "N1", "JFK", "departed", when, (-5, None), False),
            ("4", "UA", None, "EWR", "scheduled", when, None, False),
            ("5", "UA", "N9", "EWR", "scheduled", when, None, True),
            ("6", "XX", "N3", "EWR", "scheduled", when, None, False),
        ],
        FLIGHTS,
    )
    _silver(
        tables, "airlines", [("UA", "United", False), ("XX", "Gone", True)], "_id STRING, name STRING, _deleted BOOLEAN"
    )
    _silver(
        tables,
        "weather",
        [(("EWR", HOUR), 30.0, 0.2, 5.0, 3.0, False), (("JFK", HOUR), 50.0, 0.0, 0.5, 3.0, True)],
        WEATHER,
    )
    _silver(
        tables,
        "planes",
        [
            ("N1", 2003, "AIRBUS INDUSTRIE", 100, False),
            ("N2", None, "AIRBUS", 200, False),
            ("N3", 2000, "BOEING", 300, True),
        ],
        PLANES,
    )


@pytest.mark.long
def test_the_demos_pieces_count_what_they_say(tables: Tables) -> None:
    _airline(tables)
    graph = load_graph(GOLD)
    results = publish(tables, graph)
    assert {result.name: (result.status, result.rows, result.reason) for result in results} == {
        "delay_by_weather": ("built", None, "each read runs its query"),
        "fleet_age": ("built", 1, "full: first build"),
        "on_time_performance": ("built", 2, "full: first build"),
    }
    on_time = [
        tuple(row) for row in query(tables, graph, "select * from gold.on_time_performance order by carrier").collect()
    ]
    assert [tuple(map(str, row)) for row in on_time] == [
        ("UA", "United", "5", "2", "1", "20.0", "14.5", "14.5", "50.0"),
        ("XX", "XX", "1", "0", "0", "0.0", "None", "None", "None"),
    ]
    weather = [tuple(row)[:4] for row in query(tables, graph, "select * from gold.delay_by_weather").collect()]
    assert weather == [("snow or ice", 2, 15.0, 15.0), ("not observed", 1, -5.0, -5.0)]
    fleet = [tuple(row) for row in query(tables, graph, "select * from gold.fleet_age").collect()]
    assert fleet == [("UA", "AIRBUS", 2, 10.0, 300, 150.0)]
    assert tables.detail(TableName("gold", "fleet_age"))["description"].startswith("The twenty largest fleets")


def test_a_second_build_replaces_and_a_new_description_is_carried(tables: Tables) -> None:
    _silver(tables, "a", [(1,), (2,)], "x INT")
    publish(tables, parse({"t.sql": "-- materialized: table\n-- description: the old\nselect x from silver.a"}))
    results = publish(
        tables,
        parse(
            {
                "t.sql": "-- materialized: table\n-- description: it's new\n"
                "select x, 'it\\'s' as y from silver.a where x > 1"
            }
        ),
    )
    assert [(result.status, result.rows) for result in results] == [("built", 1)]
    expected = tables.spark.createDataFrame([(2, "it's")], "x INT, y STRING")
    assert_df_equality(tables.read(TableName("gold", "t")), expected, ignore_nullable=True)
    assert tables.detail(TableName("gold", "t"))["description"] == "it's new"


def test_two_quotes_in_a_string_are_one_quote_since_spark_4_1(tables: Tables) -> None:
    """Spark 4.0 reads two strings and joins them. A backslash before the quote is read alike by all versions."""
    publish(tables, parse({"t.sql": "-- materialized: table\nselect 'it''s' as two, 'it\\'s' as backslash"}))
    (row,) = tables.read(TableName("gold", "t")).collect()
    joined = minor_of(tables.spark.version) == "4.0"
    assert row.asDict() == {"two": "its" if joined else "it's", "backslash": "it's"}


def test_a_failed_node_blocks_its_descendants_and_nothing_else(tables: Tables) -> None:
    _silver(tables, "a", [(0,)], "x INT")
    graph = parse(
        {
            "broken.sql": "-- materialized: table\nselect 1 / x as y from silver.a",
            "wrong_column.sql": "select nothing from silver.a",
            "below.sql": "select * from gold.broken",
            "further_below.sql": "-- materialized: table\nselect * from gold.below",
            "no_table.sql": "select * from silver.not_yet",
            "good.sql": "-- materialized: table\nselect x from silver.a",
        }
    )
    results = {result.name: result for result in publish(tables, graph)}
    assert {name: result.status for name, result in results.items()} == {
        "broken": "failed",
        "wrong_column": "failed",
        "below": "skipped",
        "further_below": "skipped",
        "no_table": "skipped",
        "good": "built",
    }
    assert "DIVIDE_BY_ZERO" in results["broken"].reason
    assert "UNRESOLVED_COLUMN" in results["wrong_column"].reason
    assert results["below"].reason == results["further_below"].reason == "blocked by gold.broken"
    assert results["no_table"].reason == "silver.not_yet not there yet"
    assert not any("\n" in result.reason for result in results.values())


def test_views_on_views_are_expanded_wherever_they_are_named(tables: Tables) -> None:
    _silver(tables, "a", [(1,), (2,), (3,)], "x INT")
    graph = parse(
        {
            "big.sql": "-- description: x\nwith a as (select x from silver.a) select * from a where a.x > 1 -- tail",
            "bigger.sql": "select big.x from gold.big where x > 2;",
            "both.sql": "-- materialized: table\n"
            "select gold.big.x, b.x as y from gold.big left join gold.bigger b on gold.big.x = b.x",
        }
    )
    assert [result.status for result in publish(tables, graph)] == ["built"] * 3
    sql = (
        "with a as (select 9 as x) select both.*, (select max(x) from gold.bigger) m"
        " from gold.both join a on true order by both.x"
    )
    assert [tuple(row) for row in query(tables, graph, sql).collect()] == [(2, None, 3), (3, 3, 3)]


def test_queries_name_tables_by_layer(tables: Tables) -> None:
    _silver(tables, "flights", [(1,)], "x INT")
    tables.replace(TableName("silver", "flights"), tables.spark.createDataFrame([(2,)], "x INT"))
    tables.replace(TableName("bronze", "mongo"), tables.spark.createDataFrame([(1, "c")], "batch INT, op STRING"))
    graph = load_graph(GOLD)
    assert query(tables, graph, "SELECT op FROM Bronze.`mongo` WHERE mongo.batch = 1").first() == ("c",)
    first = tables.version(TableName("silver", "flights")) - 1
    upper = {"silver": lambda rows: rows.selectExpr("x + 100 AS x")}
    assert query(tables, graph, "select f.x from silver.flights f", upper).first() == (102,)
    assert query(tables, graph, f"select x from silver.flights version as of {first}", upper).first() == (1,)
    assert query(tables, graph, f"select x from silver.flights version as of {first}").first() == (1,)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("select * from silver.flihgts", "there is no silver.flihgts (did you mean silver.flights?)"),
        ("select * from gold.fleet_agee", "there is no gold.fleet_agee (did you mean gold.fleet_age?)"),
        ("select * from gold.delay_by_weather", "there is no silver.weather"),
        ("select * from flights", "line 1: flights has no layer"),
        ("drop table silver.flights", "DROP is not a query"),
        ("select nothing from silver.flights", "UNRESOLVED_COLUMN"),
        ("select * from silver.../x", "line 1"),
    ],
)
def test_a_query_that_cannot_be_answered_is_one_line(tables: Tables, sql: str, message: str) -> None:
    _silver(tables, "flights", [(1,)], "x INT")
    with pytest.raises(ConfigurationError) as caught:
        query(tables, load_graph(GOLD), sql)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_lake_in_a_folder_with_a_hostile_name(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(spark, Lake(root=str(tmp_path / "a 'b; -- c")))
    _silver(tables, "a", [(1,)], "x INT")
    graph = parse({"t.sql": "-- materialized: table\nselect a.x from silver.a"})
    assert [(result.status, result.reason) for result in publish(tables, graph)] == [("built", "full: first build")]
    assert query(tables, graph, "select t.x from gold.t").first() == (1,)


@pytest.fixture
def catalog_tables(spark: SparkSession, tmp_path: Path) -> Iterator[Tables]:
    lake = Lake(catalog="spark_catalog", schema="goldtest")
    for layer in ("silver", "gold"):
        spark.sql(f"CREATE SCHEMA spark_catalog.goldtest_{layer} LOCATION '{tmp_path}/{layer}'")
    yield Tables(spark, lake)
    for layer in ("silver", "gold"):
        spark.sql(f"DROP SCHEMA spark_catalog.goldtest_{layer} CASCADE")


def test_in_a_catalog_a_view_is_a_view(catalog_tables: Tables) -> None:
    tables = catalog_tables
    _silver(tables, "a", [(1,), (2,)], "x INT")
    graph = parse(
        {
            "v.sql": "-- description: it's a view\n-- column x: it's a number\nselect a.x from silver.a where x > 1",
            "t.sql": "-- materialized: table\n-- description: a table\nselect v.x from gold.v",
        }
    )
    for status in ("built", "unchanged"):
        assert [(result.name, result.status) for result in publish(tables, graph)] == [("v", "built"), ("t", status)]
    assert tables.spark.table("spark_catalog.goldtest_gold.v").schema["x"].metadata["comment"] == "it's a number"
    assert tables.spark.table("spark_catalog.goldtest_gold.v").collect() == [(2,)]
    assert query(tables, graph, "select gold.t.x, v.x from gold.t join gold.v on true").collect() == [(2, 2)]
