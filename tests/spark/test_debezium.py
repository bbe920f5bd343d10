"""Bronze as a consumer of Debezium's events expects it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import reduce
from typing import Any

import bson
import pytest
from bson.binary import Binary
from bson.decimal128 import Decimal128
from bson.objectid import ObjectId
from chispa import assert_df_equality
from pyspark.sql import DataFrame, Row, SparkSession

from strandline.bronze.chunk_rows import ChunkStamp, absent_table, manifest_table, read_table
from strandline.bronze.debezium import VALUE, debezium_events, event_id
from strandline.bronze.envelope import Batch, BatchEnd, Stamp, stream_table
from strandline.io.tables.ddl import schema_of
from strandline.model.bson.extended_json import JsonMode
from strandline.model.table_schemas import BRONZE_DDL

STAMP = Stamp("shop", "run-1", 1_700_000_000_123_456)
CHUNK = ChunkStamp(STAMP, "s1", 3, "inventory", "customers", "ab", 1000, 5)
LSID = {"id": Binary(b"0123456789abcdef", 4)}


def event(token: str, operation: str, collection: str = "customers", **more: Any) -> bytes:
    content = {
        "_id": {"_data": token},
        "operationType": operation,
        "clusterTime": bson.Timestamp(1000, 7),
        "ns": {"db": "inventory", "coll": collection},
        "documentKey": {"_id": 1004},
    }
    return bson.encode(content | more)


WALL_TIME = {"wallTime": datetime.fromtimestamp(1000.5, UTC)}


EVENTS = [
    event("01", "insert", fullDocument={"_id": 1004, "name": "Anne"}, lsid=LSID, txnNumber=bson.Int64(3)),
    event("02", "insert", "orders", fullDocument={"_id": 1004}, lsid=LSID, txnNumber=bson.Int64(3)),
    event(
        "03",
        "update",
        **WALL_TIME,
        lsid=LSID,
        txnNumber=bson.Int64(3),
        fullDocument={"_id": 1004, "name": "Anne Marie"},
        fullDocumentBeforeChange={"_id": 1004, "name": "Anne"},
        updateDescription={
            "updatedFields": {"name": "Anne Marie"},
            "removedFields": ["age"],
            "truncatedArrays": [{"field": "tags", "newSize": 2}],
        },
    ),
    event("04", "delete"),
    event("05", "drop"),
]


CUSTOMERS = "fulfillment.inventory.customers"


@pytest.fixture
def bronze_rows(spark: SparkSession) -> DataFrame:
    parts = [
        stream_table(Batch(1, EVENTS, BatchEnd("{}", None), STAMP)),
        read_table([bson.encode({"_id": "a", "name": "Bob"})], CHUNK, stored_json=False),
        absent_table(["7"], CHUNK),
        manifest_table(CHUNK, "chunk", "{}"),
    ]
    return reduce(DataFrame.union, [spark.createDataFrame(part, schema=schema_of(BRONZE_DDL)) for part in parts])


# scenario: B16
def test_bronze_rows_become_debeziums_events_with_topic_id_and_value(bronze_rows: DataFrame) -> None:
    events = debezium_events(bronze_rows, prefix="fulfillment")
    assert events.columns == ["position", "topic", "id", *VALUE]
    rows = {(row["id"], row["op"], row["topic"]): row for row in events.collect()}
    assert set(rows) == {
        ("1004", "c", CUSTOMERS),
        ("1004", "c", "fulfillment.inventory.orders"),
        ("1004", "u", CUSTOMERS),
        ("1004", "d", CUSTOMERS),
        ('"a"', "r", CUSTOMERS),
        ("7", "d", CUSTOMERS),
    }
    assert rows['"a"', "r", CUSTOMERS]["source"]["snapshot"] == "true"
    delete = rows["1004", "d", CUSTOMERS]
    assert delete["source"]["ts_ms"] == 1_000_000
    assert [delete[name] for name in ("transaction", "after", "updateDescription")] == [None, None, None]


# scenario: D02
def test_an_update_event_has_both_images_its_changes_its_times_and_its_transaction(bronze_rows: DataFrame) -> None:
    (update,) = debezium_events(bronze_rows, prefix="fulfillment").where("op = 'u'").collect()
    assert [json.loads(update[image])["name"] for image in ("before", "after")] == ["Anne", "Anne Marie"]
    assert update["updateDescription"].asDict(recursive=True) == {
        "removedFields": ["age"],
        "updatedFields": '{ "name" : "Anne Marie" }',
        "truncatedArrays": [{"field": "tags", "size": 2}],
    }
    milliseconds = 1_700_000_000_123
    times = [update[name] for name in ("ts_ms", "ts_us", "ts_ns")]
    assert times == [milliseconds, milliseconds * 1_000 + 456, (milliseconds * 1_000 + 456) * 1_000]
    assert {
        "connector": "mongodb",
        "name": "shop",
        "db": "inventory",
        "collection": "customers",
        "ts_ms": 1000500,
        "wallTime": 1000500,
        "ord": 7,
        "txnNumber": 3,
        "snapshot": "false",
    }.items() <= update["source"].asDict().items()
    assert (update["transaction"]["total_order"], update["transaction"]["data_collection_order"]) == (3, 2)


# scenario: D08
def test_with_tombstones_each_delete_is_followed_by_a_row_without_a_value(bronze_rows: DataFrame) -> None:
    plain = debezium_events(bronze_rows, prefix="fulfillment")
    with_tombstones = debezium_events(bronze_rows, prefix="fulfillment", tombstones=True)
    assert_df_equality(with_tombstones.where("op IS NOT NULL"), plain, ignore_row_order=True, ignore_nullable=True)
    tombstones = with_tombstones.where("op IS NULL").collect()
    assert {row["id"] for row in tombstones} == {"1004", "7"}
    assert all(row[name] is None for row in tombstones for name in VALUE)
    deletes = {row["position"] for row in plain.where("op = 'd'").collect()}
    assert {row["position"] for row in tombstones} == deletes


# scenario: B16
def test_documents_come_in_the_json_that_was_asked_for_and_the_source_names_its_replica_set(
    spark: SparkSession,
) -> None:
    born = datetime.fromtimestamp(1783101585.729, UTC)
    content = {"_id": 1004, "n": bson.Int64(5), "x": 10.0, "born": born}
    change = {"updatedFields": {"n": bson.Int64(5), "born": born}, "removedFields": [], "truncatedArrays": []}
    events = [event("03", "update", fullDocument=content, fullDocumentBeforeChange=content, updateDescription=change)]
    table = stream_table(Batch(1, events, BatchEnd("{}", None), STAMP, stored_json=True))
    rows = spark.createDataFrame(table, schema=schema_of(BRONZE_DDL))

    def shown(mode: JsonMode, replica_set: str | None = "rs0") -> Row:
        (row,) = debezium_events(rows, prefix="f", json_mode=mode, replica_set=replica_set).collect()
        return row

    strict = '{"_id": 1004,"n": {"$numberLong": "5"},"x": 10.0,"born": {"$date": 1783101585729}}'
    relaxed = {"n": 5, "born": {"$date": "2026-07-03T17:59:45.729Z"}}
    for mode in ("legacy", "strict"):
        row = shown(mode)
        assert (row["after"], row["before"], row["id"]) == (strict, strict, "1004")
    assert json.loads(shown("legacy")["updateDescription"]["updatedFields"]) == relaxed
    assert (
        shown("strict")["updateDescription"]["updatedFields"]
        == '{"n": {"$numberLong": "5"},"born": {"$date": 1783101585729}}'
    )
    assert json.loads(shown("relaxed")["after"]) == {"_id": 1004, "x": 10.0, **relaxed}
    assert json.loads(shown("extended")["after"])["x"] == {"$numberDouble": "10.0"}
    assert shown("strict")["source"]["rs"] == "rs0"
    assert shown("strict", None)["source"]["rs"] is None


def test_the_key_is_written_as_debezium_writes_it() -> None:
    oid = ObjectId("596e275826f08b2730779e1f")
    expected = {
        "1234": 1234,
        "12.34": 12.34,
        '"1234"': "1234",
        '{"$numberLong": "5000000000"}': bson.Int64(5_000_000_000),
        '{"$binary": "a2Fma2E=","$type": "00"}': Binary(b"kafka", 0),
        '{"hi": "kafka","nums": [10.0, 100.0, 1000.0]}': {"hi": "kafka", "nums": [10.0, 100.0, 1000.0]},
        '{"n": {"$numberLong": "7"},"at": {"$date": 1000}}': {"n": bson.Int64(7), "at": datetime.fromtimestamp(1, UTC)},
        '{"$date": 1000}': datetime.fromtimestamp(1, UTC),
        '{"$oid": "596e275826f08b2730779e1f"}': oid,
        '{"$numberDecimal": "1.10"}': Decimal128("1.10"),
        "null": None,
        '{"$numberDouble": "NaN"}': float("nan"),
    }
    assert [event_id("r", bson.encode({"_id": value})) for value in expected.values()] == list(expected)
    assert event_id("r", bson.encode({"_id": {"a": "XX"}}).replace(b"XX", b"\xff\xfe")) is None
    assert event_id("c", bson.encode({"documentKey": {"_id": 1}})) == "1"
    assert event_id("c", bson.encode({"a": 1})) is None
