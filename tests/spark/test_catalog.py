"""What catalogs can and cannot: Spark's own, and one of a JDBC source, which has schemas but no views and no Delta."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, UnsupportedOperationException
from pyspark.sql import SparkSession

from strandline.errors import ConfigurationError
from strandline.io.tables.catalog import Catalog
from strandline.io.tables.ddl import schema_of
from strandline.io.tables.spark_tables import Tables
from strandline.io.tables.table_swap import swap
from strandline.model.tables import Lake, TableName, live_of
from strandline.silver.live_view import drop_live, make_room, show_live
from strandline.silver.silver_table import SilverTable

_JDBC = "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog"
_DRIVER = "org.apache.derby.jdbc.EmbeddedDriver"
_MANAGED = {"delta.feature.catalogManaged": "supported"}
GOLD = TableName("gold", "v")


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Iterator[Tables]:
    """A lake in Spark's own catalog, whose schemas other people have made: gold, control and silver."""
    lake = Lake(catalog="spark_catalog", schema=f"c{uuid.uuid4().hex[:8]}")
    for layer in ("gold", "control", "silver"):
        spark.sql(f"CREATE SCHEMA {lake.sql_schema(layer)} LOCATION '{tmp_path}/{layer}'")
    yield Tables(spark, lake)
    for layer in ("gold", "control", "silver", "bronze"):
        spark.sql(f"DROP SCHEMA IF EXISTS {lake.sql_schema(layer)} CASCADE")


class Derby:
    """A database in memory. Each user has a catalog of his own in it. The owner alone may create schemas."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark, self.name = spark, f"derby_{uuid.uuid4().hex[:8]}"
        self._url = f"jdbc:derby:memory:{self.name}"
        right = "CALL SYSCS_UTIL.SYSCS_SET_DATABASE_PROPERTY('derby.database.sqlAuthorization', 'true')"
        reader = spark.read.format("jdbc").options(driver=_DRIVER, query="SELECT 1 AS a FROM SYSIBM.SYSDUMMY1")
        reader.options(url=f"{self._url};create=true;user=owner", sessionInitStatement=right).load().collect()
        with pytest.raises(PySparkException, match="connect"):  # so Derby answers a shutdown
            reader.options(url=f"{self._url};shutdown=true").load()

    def catalog(self, user: str) -> Catalog:
        name = f"{self.name}_{user}"
        settings = {"": _JDBC, ".url": self._url, ".driver": _DRIVER, ".user": user, ".password": user}
        for key, value in settings.items():
            self.spark.conf.set(f"spark.sql.catalog.{name}{key}", value)
        return Catalog(self.spark, Lake(catalog=name))


def test_only_tables_are_listed(tables: Tables) -> None:
    assert tables.names("bronze") == [], "there is no schema yet"
    tables.create(TableName("gold", "t"), schema_of("a INT"))
    tables.replace_view(GOLD, "SELECT 1 AS a", {"a": ""})
    tables.spark.range(1).createOrReplaceTempView("strandline_gold_temporary")
    assert tables.names("gold") == [TableName("gold", "t")]
    assert tables.exists(GOLD)
    tables.spark.catalog.dropTempView("strandline_gold_temporary")


def test_a_principal_without_the_right_to_create_schemas_needs_none_where_they_are(spark: SparkSession) -> None:
    derby = Derby(spark)
    with pytest.raises(
        ConfigurationError, match=r"no schema .*_bronze`, .*_control`, .*refuses .*strandline explain catalogs"
    ) as found:
        derby.catalog("guest").require_schemas("silver")
    assert "\n" not in str(found.value)
    derby.catalog("owner").require_schemas("silver")
    derby.catalog("guest").require_schemas("silver")


def test_a_catalog_without_views_has_a_table_in_their_place(tables: Tables) -> None:
    other = Derby(tables.spark).catalog("owner")
    other.require_schemas("gold")
    assert other.tables("gold") == []
    assert not other.write_view(GOLD, "(`a`) COMMENT 'c' AS SELECT 1 AS a")
    # why private: no catalog here has Delta and no views
    tables.catalog._lacks |= other._lacks
    assert other._lacks == {"SHOW VIEWS", "CREATE OR REPLACE VIEW", "DROP VIEW"}
    for number in (1, 2):
        tables.replace_view(GOLD, f"SELECT {number} AS a, 'x' AS b", {"a": "it's a number", "b": ""}, comment="c")
        assert tables.read(GOLD).collect() == [(number, "x")]
    assert tables.read(GOLD).schema["a"].metadata["comment"] == "it's a number"
    assert tables.names("gold") == [GOLD]
    assert tables.detail(GOLD)["description"] == "c"


@pytest.mark.parametrize(
    ("catalog", "reason"),
    [
        ("nowhere", "Spark has no catalog of this name"),
        ("gone", "Cannot find catalog plugin class"),
    ],
)
def test_a_catalog_that_cannot_be_used_is_one_line(spark: SparkSession, catalog: str, reason: str) -> None:
    spark.conf.set("spark.sql.catalog.gone", "io.unitycatalog.spark.UCSingleCatalog")
    with pytest.raises(
        ConfigurationError, match=rf"the catalog {catalog} .*{reason}.*spark\.sql\.catalog\.{catalog}"
    ) as found:
        Tables(spark, Lake(catalog=catalog)).exists(GOLD)
    spark.conf.unset("spark.sql.catalog.gone")
    assert "\n" not in str(found.value)
    assert len(str(found.value)) < 400


def test_schemas_that_may_not_be_created_are_named_before_anything_is_written(spark: SparkSession) -> None:
    tables = Tables(spark, Lake(catalog="spark_catalog", schema="not allowed"))
    with pytest.raises(
        ConfigurationError,
        match=r"no schema .*_bronze`, .*_control`, .*_silver`.*refuses .*strandline explain catalogs",
    ):
        tables.create(TableName("bronze", "t"), schema_of("a INT"))


def test_schemas_are_created_where_they_are_missing(tables: Tables) -> None:
    tables.create(TableName("silver", "t"), schema_of("a INT"))
    assert tables.spark.catalog.databaseExists(tables.lake.sql_schema("bronze"))
    # a principal that may create none needs none
    Catalog(tables.spark, tables.lake).require_schemas("gold")


def test_unity_catalog_oss_is_told_that_it_manages_the_commits(spark: SparkSession, tables: Tables) -> None:
    assert tables.required_properties == {}
    assert Tables(spark, Lake(root="file:///x")).required_properties == {}
    spark.conf.set("spark.sql.catalog.uc", "io.unitycatalog.spark.UCSingleCatalog")
    uc = Catalog(spark, Lake(catalog="uc"))
    assert uc.required_properties == _MANAGED
    spark.conf.unset("spark.sql.catalog.uc")
    table, by = TableName("silver", "t"), TableName("control", "by")
    tables.create(table, schema_of("a INT"))
    tables.create(by, schema_of("a INT"))
    tables.catalog.required_properties = uc.required_properties
    # Delta lets only Unity Catalog have such tables, and says so: the property arrived
    for write in (
        lambda: tables.create(TableName("silver", "new"), schema_of("a INT")),
        lambda: tables.replace(GOLD, spark.range(1)),
        lambda: swap(tables, table, by, properties={}, cluster_by=("a",)),
    ):
        with pytest.raises(UnsupportedOperationException) as refused:
            write()
        assert "CATALOG_MANAGED" in (refused.value.getCondition() or "")


def test_a_live_view_follows_its_table_and_leaves_the_names_of_others(tables: Tables) -> None:
    orders = TableName("silver", "orders")
    live = live_of(orders)
    SilverTable(tables, orders).open("shop.orders", "test")
    show_live(tables, orders)
    assert tables.read(live).columns == ["_key", "_rescued"]
    tables.spark.sql(f"ALTER TABLE {tables.lake.sql(orders)} ADD COLUMNS (total DOUBLE COMMENT 'in euro')")
    insert = f"INSERT INTO {tables.lake.sql(orders)} (_key, _deleted, total) VALUES"
    tables.spark.sql(f"{insert} ('1', false, 2.5), ('2', true, 4.5)")
    assert tables.read(live).collect() == [("1", None, 2.5)], "a column that came later, and no tombstone"
    described = tables.spark.sql(f"DESCRIBE TABLE {tables.lake.sql(live)}").collect()
    assert {row["col_name"]: row["comment"] for row in described}["total"] == "in euro"
    assert tables.names("silver") == [orders], "a view is no table"

    make_room(tables, orders)
    assert tables.exists(orders), "a table stays"
    make_room(tables, live)
    assert not tables.exists(live), "a collection may take the name of a live view"
    tables.spark.sql(f"CREATE VIEW {tables.lake.sql(live)} AS SELECT 1 AS own")
    for change in (show_live, drop_live):
        change(tables, orders)
    make_room(tables, live)
    assert tables.read(live).columns == ["own"], "a view of somebody else stays"
    tables.spark.sql(f"DROP VIEW {tables.lake.sql(live)}")
    show_live(tables, orders)
    drop_live(tables, orders)
    assert not tables.exists(live)
