"""Column lineage of gold: from which columns of which tables each column of a query is made."""

from __future__ import annotations

import pytest

from strandline.gold.column_lineage import NoColumnLineage, column_lineage
from strandline.gold.graph import parse
from strandline.model.tables import TableName

COLUMNS = {
    "flights": ["carrier", "arr_delay", "Distance", "_deleted"],
    "airlines": ["carrier", "name", "address"],
    "odd": ["c", "d.e"],
}
TABLE = "-- materialized: table\n"


def lineage_of(**files: str) -> dict[str, set[str]]:
    """Sources of each column of the last of *files*."""
    graph = parse({f"{name}.sql": sql for name, sql in files.items()})
    found = column_lineage(graph, graph.nodes[list(files)[-1]], lambda table: COLUMNS[table.name])
    return {
        column: {f"{each.table}.{each.column} {each.transformation}" for each in sources}
        for column, sources in found.items()
    }


def test_each_column_has_its_sources_and_the_strongest_transformation_on_the_way() -> None:
    assert lineage_of(
        node="""WITH late AS (
            SELECT carrier, avg(arr_delay) AS delay, count(*) AS n FROM silver.flights
            WHERE NOT _deleted GROUP BY carrier
        )
        SELECT airlines.name AS airline, late.*, round(delay) AS rounded, 1 AS one, address.`city`.name AS city
        FROM late JOIN silver.airlines ON airlines.carrier = late.carrier"""
    ) == {
        "airline": {"silver.airlines.name IDENTITY"},
        "carrier": {"silver.flights.carrier IDENTITY"},
        "delay": {"silver.flights.arr_delay AGGREGATION"},
        "n": set(),
        "rounded": {"silver.flights.arr_delay AGGREGATION"},
        "one": set(),
        "city": {"silver.airlines.address TRANSFORMATION"},
    }


def test_a_view_is_a_table_of_its_own_and_its_star_is_known() -> None:
    view = "select carrier, Distance * 2 as far from silver.flights"
    assert lineage_of(view=view, node=TABLE + "select * from gold.view") == {
        "carrier": {"gold.view.carrier IDENTITY"},
        "far": {"gold.view.far IDENTITY"},
    }


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (
            "select carrier, distance a from silver.flights union all select carrier, upper(name) from silver.airlines",
            {
                "carrier": {"silver.flights.carrier IDENTITY", "silver.airlines.carrier IDENTITY"},
                "a": {"silver.flights.Distance IDENTITY", "silver.airlines.name TRANSFORMATION"},
            },
        ),
        (
            "select `A b`.c as `x.y`, * except (c) from (select * from silver.odd) as `A b`",
            {"x.y": {"silver.odd.c IDENTITY"}, "d.e": {"silver.odd.d.e IDENTITY"}},
        ),
        (
            "select a.carrier as x, (select max(arr_delay) from silver.flights) as y from silver.airlines as a",
            {"x": {"silver.airlines.carrier IDENTITY"}, "y": {"silver.flights.arr_delay AGGREGATION"}},
        ),
        (
            "select sum(arr_delay) over (partition by carrier) as s from silver.flights version as of 3",
            {"s": {"silver.flights.arr_delay AGGREGATION", "silver.flights.carrier AGGREGATION"}},
        ),
    ],
    ids=["a union", "names with dots", "a subquery", "a window"],
)
def test_each_column_has_its_sources_and_transformations(sql: str, expected: dict[str, set[str]]) -> None:
    assert lineage_of(node=sql) == expected


def test_a_query_that_cannot_be_followed_is_one_line() -> None:
    graph = parse({"node.sql": "select * from silver.flights"})

    def gone(table: TableName) -> list[str]:
        raise ValueError(f"no\n{table}")

    with pytest.raises(NoColumnLineage, match="ValueError: no silver"):
        column_lineage(graph, graph.nodes["node"], gone)
