"""SQL files of gold views: the text for Spark and for DuckDB."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from plain_lake import SALES, build_plain_lake

from strandline import read
from strandline.gold.graph import parse
from strandline.gold.view_files import FOLDER, NotTranslated, duckdb_file, name_in, spark_file
from strandline.io.delta_log.text_files import mirror_texts
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.model.tables import Lake, TableName

ORDERS, QUARANTINE = TableName("silver", "orders"), TableName("silver", "orders_quarantine")
GRAPH = parse(
    {
        "large.sql": "-- description: it's large\nSELECT _id, total FROM silver.orders WHERE total > 10;",
        "two.sql": "SELECT l._id, o.tags[0] AS tag FROM gold.large l JOIN silver.orders o USING (_id)",
        "live.sql": "SELECT total, customer.city FROM silver.orders WHERE NOT _deleted",
        "past.sql": "SELECT * FROM silver.orders VERSION AS OF 3",
    }
)
LAKE = Lake(root="/data/it's a lake")


def test_a_view_names_paths_leaves_out_the_quarantine_and_holds_the_views_that_it_reads() -> None:
    text = duckdb_file(LAKE, GRAPH, GRAPH.nodes["two"], {ORDERS: QUARANTINE})
    con = duckdb.connect()
    for table, rows in (("orders", "(1, 11, ['a'], false), (2, 12, ['b'], false)"), ("orders_quarantine", "(2)")):
        names = "_id, total, tags, _deleted" if table == "orders" else "_key"
        path = f"/data/it's a lake/silver/{table}"
        key = ", _id AS _key" if table == "orders" else ""
        con.execute(f"""CREATE VIEW "{path}" AS SELECT *{key} FROM (VALUES {rows}) AS v({names})""")
    con.execute("CREATE MACRO delta_scan(path) AS TABLE SELECT * FROM query_table(path)")
    con.execute(text)
    assert con.sql("FROM gold.two").fetchall() == [(1, "a")]
    assert con.sql("SELECT current_setting('TimeZone')").fetchall() == [("UTC",)]
    spark = spark_file(LAKE, GRAPH, GRAPH.nodes["large"], {})
    assert spark.startswith(
        "-- gold.large: written by strandline gold\n-- it's large\nCREATE OR REPLACE TEMPORARY VIEW"
    )
    assert "FROM delta.`/data/it's a lake/silver/orders` AS `orders`" in spark


def test_duckdb_names_a_store_in_its_own_way_and_has_no_file_for_time_travel() -> None:
    text = duckdb_file(Lake(root="s3a://bucket/lake"), GRAPH, GRAPH.nodes["large"], {})
    assert "DELTA_SCAN('s3://bucket/lake/silver/orders')" in text
    with pytest.raises(NotTranslated, match="time travel"):
        duckdb_file(LAKE, GRAPH, GRAPH.nodes["past"], {})
    assert [name_in(file) for file in ("large.spark.sql", "two.duckdb.sql", "notes.txt")] == ["large", "two", ""]


def test_a_view_of_a_lake_in_a_folder_is_read_by_its_file(tmp_path: Path) -> None:
    lake = build_plain_lake(tmp_path / "la'ke")
    folder = lake.path(FOLDER)
    text = duckdb_file(lake, GRAPH, GRAPH.nodes["live"], {})
    mirror_texts(folder, {"live.duckdb.sql": text, "gone.spark.sql": "", "mine.txt": ""}, None, lambda _: False)
    mirror_texts(folder, {"live.duckdb.sql": text}, None, lambda file: name_in(file) not in {"", "live"})
    assert sorted(file.name for file in Path(folder).iterdir()) == ["live.duckdb.sql", "mine.txt"]
    assert read("gold.live", root=tmp_path / "la'ke").to_pylist() == [{"total": 2.5, "city": "Köln"}]
    assert read("gold.live", root=tmp_path / "la'ke", using="duckdb").fetchall() == [(2.5, "Köln")]
    assert read("gold.live", root=tmp_path / "la'ke", using="polars").collect().rows() == [(2.5, "Köln")]
    columns = ["_key", "_rescued", "_id", "total", "customer", "Größe"]
    assert read("orders", root=tmp_path / "la'ke").schema.names == columns
    assert DeltaRsTables(lake).names("gold") == [SALES], "the folder of the files is no table"
