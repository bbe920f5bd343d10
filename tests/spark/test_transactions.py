"""Transactions read from bronze: the same whatever cut them."""

from __future__ import annotations

from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession

from strandline.bronze.transactions import transaction_block, transactions

_SESSION = (
    '{"id": {"$binary": {"base64": "AAECAw==", "subType": "04"}}, "uid": {"$binary": {"base64": "", "subType": "00"}}}'
)
_DDL = """batch BIGINT, position STRING, key STRING, op STRING, db STRING, collection STRING,
source STRUCT<lsid: STRING, txn_number: BIGINT>, cluster_time TIMESTAMP, resume_token STRING"""


def bronze(spark: SparkSession) -> DataFrame:
    """Transaction 1 over two collections, cut by a batch and partly replayed; a change outside; transaction 2."""
    first, second, none = (_SESSION, 1), (_SESSION, 2), (None, None)
    rows = [
        (1, "t:1", "k", "c", "shop", "orders", first, None, None),
        (1, "t:2", "k", "u", "shop", "lines", first, None, '{"_data": "2"}'),
        (2, "t:3", "k", "c", "shop", "lines", first, None, None),
        (3, "t:2", "k", "u", "shop", "lines", first, None, None),
        (3, "t:4", "k", "c", "shop", "lines", none, None, None),
        (3, "t:5", "k", "d", "shop", "orders", second, None, '{"_data": "5"}'),
        (None, "t:~", "k", "r", "shop", "orders", none, None, None),
    ]
    return spark.createDataFrame(rows, _DDL)


# scenario: I01, I03
def test_every_event_knows_its_place_in_its_transaction(spark: SparkSession) -> None:
    found = (
        bronze(spark)
        .withColumn("transaction", transaction_block())
        .select("batch", "position", "transaction.*")
        .distinct()
    )
    expected = [
        (1, "t:1", "00010203:1", 1, 1),
        (1, "t:2", "00010203:1", 2, 1),
        (2, "t:3", "00010203:1", 3, 2),
        (3, "t:2", "00010203:1", 2, 1),
        (3, "t:4", None, None, None),
        (3, "t:5", "00010203:2", 1, 1),
        (None, "t:~", None, None, None),
    ]
    assert_df_equality(
        found, spark.createDataFrame(expected, found.schema), ignore_row_order=True, ignore_nullable=True
    )


def test_a_transaction_ends_once_something_later_is_there(spark: SparkSession) -> None:
    found = transactions(bronze(spark)).drop("cluster_time")
    counts = [("shop.lines", 2), ("shop.orders", 1)]
    expected = [
        ("BEGIN", "00010203:1", "t:1", None, None),
        ("END", "00010203:1", "t:3", 3, counts),
        ("BEGIN", "00010203:2", "t:5", None, None),
    ]
    assert_df_equality(
        found, spark.createDataFrame(expected, found.schema), ignore_row_order=True, ignore_nullable=True
    )
    later = bronze(spark).unionByName(
        spark.createDataFrame([(4, None, None, "heartbeat", None, None, (None, None), None, '{"_data": "6"}')], _DDL)
    )
    ends = transactions(later).where("status = 'END'").select("id", "event_count").collect()
    assert sorted(map(tuple, ends)) == [("00010203:1", 3), ("00010203:2", 1)]
