"""Bronze as a consumer of Debezium's events expects it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import bson
from bson.binary import Binary
from bson.decimal128 import Decimal128
from bson.objectid import ObjectId
from chispa import assert_df_equality
from pyspark.sql import Row, SparkSession

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


# scenario: B16, D02, D08
def test_events_have_debeziums_fields_and_a_delete_its_tombstone(spark: SparkSession) -> None:
    parts = [
        stream_table(Batch(1, EVENTS, BatchEnd("{}", None), STAMP)),
        read_table([bson.encode({"_id": "a", "name": "Bob"})], CHUNK, stored_json=False),
        absent_table(["7"], CHUNK),
        manifest_table(CHUNK, "chunk", "{}"),
    ]
    frames = [spark.createDataFrame(part, schema=schema_of(BRONZE_DDL)) for part in parts]
    rows = frames[0].union(frames[1]).union(frames[2]).union(frames[3])
    plain = debezium_events(rows, prefix="fulfillment")
    assert plain.columns == ["position", "topic", "id", *VALUE]
    found = {(row["id"], row["op"], row["topic"]): row for row in plain.collect()}
    assert set(found) == {
        ("1004", "c", "fulfillment.inventory.customers"),
        ("1004", "c", "fulfillment.inventory.orders"),
        ("1004", "u", "fulfillment.inventory.customers"),
        ("1004", "d", "fulfillment.inventory.customers"),
        ('"a"', "r", "fulfillment.inventory.customers"),
        ("7", "d", "fulfillment.inventory.customers"),
    }
    update = found["1004", "u", "fulfillment.inventory.customers"]
    assert json.loads(update["after"])["name"] == "Anne Marie"
    assert json.loads(update["before"])["name"] == "Anne"
    assert update["updateDescription"].asDict(recursive=True) == {
        "removedFields": ["age"],
        "updatedFields": '{ "name" : "Anne Marie" }',
        "truncatedArrays": [{"field": "tags", "size": 2}],
    }
    assert (update["ts_ms"], update["ts_us"], update["ts_ns"]) == (
        1_700_000_000_123,
        1_700_000_000_123_456,
        1_700_000_000_123_456_000,
    )
    source = update["source"].asDict()
    assert (source["connector"], source["name"], source["db"], source["collection"]) == (
        "mongodb",
        "shop",
        "inventory",
        "customers",
    )
    assert (source["ts_ms"], source["wallTime"], source["ord"], source["txnNumber"], source["snapshot"]) == (
        1000500,
        1000500,
        7,
        3,
        "false",
    )
    assert (update["transaction"]["total_order"], update["transaction"]["data_collection_order"]) == (3, 2)
    delete = found["1004", "d", "fulfillment.inventory.customers"]
    assert (delete["source"]["ts_ms"], delete["transaction"], delete["after"], delete["updateDescription"]) == (
        1_000_000,
        None,
        None,
        None,
    )
    assert found['"a"', "r", "fulfillment.inventory.customers"]["source"]["snapshot"] == "true"

    with_tombstones = debezium_events(rows, prefix="fulfillment", tombstones=True)
    assert_df_equality(with_tombstones.where("op IS NOT NULL"), plain, ignore_row_order=True, ignore_nullable=True)
    buried = with_tombstones.where("op IS NULL").collect()
    assert {row["id"] for row in buried} == {"1004", "7"}
    assert all(row[name] is None for row in buried for name in VALUE)
    assert {row["position"] for row in buried} == {delete["position"], CHUNK.position}


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
