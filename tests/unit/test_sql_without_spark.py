"""Queries by layer names that delta-rs answers. Values are compared with Spark's in spark/test_duckdb_views.py."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from plain_lake import build_plain_lake

from strandline.jobs.operations.sql_without_spark import rows_without_spark
from strandline.model.tables import safe_name
from strandline.settings.configuration import LakeSettings, Settings

LINE = {"_id": 1, "c": {"a b": 1, "d-e": {"f.g": "x"}}, "Total": 2.5, "größe": "XL"}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    build_plain_lake(tmp_path / "lake")
    folder = tmp_path / "lake" / "silver" / safe_name("orderLines")
    write_deltalake(str(folder), pa.Table.from_pylist([LINE]))
    return Settings(lake=LakeSettings(root=str(tmp_path / "lake")))


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("select * from silver.orderLines", [LINE]),
        ("select orderLines._ID, TOTAL from silver.orderLines where total > 1.5", [{"_ID": 1, "TOTAL": 2.5}]),
        ("select `GRÖßE` from silver.orderLines", [{"GRÖßE": "XL"}]),
        ("select `Größe` as g, count(*) from silver.orderLines group by all", [{"g": "XL", "count(1)": 1}]),
        (
            "select o.day, customer.City from silver.Orders s join gold.sales o on o.orders = s._id",
            [{"day": "2026-11-25", "City": "Köln"}],
        ),
        ("select sum(orders) from gold.sales", [{"sum(orders)": 1}]),
        ("select c.`a b` from silver.orderLines", [{"a b": 1}]),
        ("select c.`A B` from silver.orderLines", None),
        ("select upper(day) as d from gold.sales", None),
    ],
)
def test_a_query_is_answered_or_left_to_spark(
    settings: Settings, query: str, rows: list[dict[str, object]] | None
) -> None:
    assert rows_without_spark(settings, query, 10) == rows


def test_no_more_rows_are_read_than_asked_for(settings: Settings) -> None:
    assert len(rows_without_spark(settings, "select * from silver.orders", 1) or ()) == 1
    assert len(rows_without_spark(settings, "select * from silver.orders limit 1", 5) or ()) == 1


def test_a_lake_that_delta_rs_does_not_reach_is_left_to_spark() -> None:
    assert rows_without_spark(Settings(lake=LakeSettings(catalog="main")), "select 1 from silver.orders", 5) is None
