"""Change events and documents become bronze rows."""

from __future__ import annotations

import dataclasses
import datetime
import re
from typing import Any

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.bronze.chunk_rows import ChunkStamp, manifest_table, read_table
from strandline.bronze.envelope import SCHEMA, Batch, BatchEnd, Stamp, control_table, stream_table
from strandline.bronze.event import parse_event
from strandline.model.bson.raw import MalformedBson
from strandline.model.table_schemas import BRONZE_DDL

STAMP = Stamp("shop", "run-1", 1_700_000_000_000_000)
END = BatchEnd('{"_data": "82FF"}', "s1")


def event(operation: str = "insert", n: int = 1, **fields: Any) -> bytes:
    base = {
        "_id": {"_data": f"82{n:08X}"},
        "operationType": operation,
        "clusterTime": bson.Timestamp(1000 + n, 7),
        "wallTime": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        "ns": {"db": "shop", "coll": "orders.eu"},
        "documentKey": {"_id": n},
    }
    return bson.encode(base | fields)


def rows(*events: bytes, stored: bool = False) -> list[dict[str, Any]]:
    return stream_table(Batch(4, events, END, STAMP, stored)).to_pylist()


def test_arrow_and_table_have_the_same_columns_in_the_same_order() -> None:
    assert SCHEMA.names == re.findall(r"^(\w+) ", BRONZE_DDL, re.MULTILINE)


@pytest.mark.parametrize(
    ("operation", "op"),
    [("insert", "c"), ("update", "u"), ("replace", "u"), ("delete", "d"), ("drop", "ddl"), ("fromTheFuture", "ddl")],
)
def test_operations_have_debeziums_letters(operation: str, op: str) -> None:
    (row,) = rows(event(operation))
    assert (row["op"], row["operation_type"]) == (op, operation)


def test_an_event_becomes_a_row_that_keeps_its_bytes() -> None:
    raw = event(
        fullDocument={"_id": 1, "x": "y"}, collectionUUID=bson.Binary(bytes(range(16)), 4), txnNumber=bson.Int64(9)
    )
    (row,) = rows(raw)
    assert row["envelope"] == raw
    assert row["position"] == "000003e900000007:8200000001"
    assert (row["db"], row["collection"], row["key"]) == ("shop", "orders.eu", "1")
    assert row["collection_uuid"] == bytes(range(16)).hex()
    assert row["document_size"] == len(bson.encode({"_id": 1, "x": "y"}))
    assert row["source"]["txn_number"] == 9
    assert row["source"]["wall_time"] == 1767225600000
    assert row["batch"] == 4


# scenario: B10
def test_only_the_row_that_ends_a_batch_carries_the_token() -> None:
    found = rows(event(n=1), event(n=2), event(n=3))
    assert [row["resume_token"] for row in found] == [None, None, '{"_data": "82FF"}']
    assert [row["snapshot_id"] for row in found] == [None, None, "s1"]


def test_a_part_that_does_not_end_the_batch_has_no_token() -> None:
    part = stream_table(Batch(4, [event(n=1), event(n=2)], None, STAMP)).to_pylist()
    assert [(row["resume_token"], row["snapshot_id"]) for row in part] == [(None, None), (None, None)]


# scenario: B06, B12
def test_a_batch_without_events_is_one_heartbeat() -> None:
    (row,) = control_table(STAMP, batch=4, end=END).to_pylist()
    assert (row["op"], row["resume_token"], row["position"], row["batch"]) == (
        "heartbeat",
        '{"_data": "82FF"}',
        None,
        4,
    )


# scenario: K10
def test_a_null_full_document_counts_as_absent() -> None:
    (row,) = rows(event("update", fullDocument=None))
    assert row["document_size"] is None


# scenario: B16
def test_an_old_server_without_wall_time_still_has_an_event_time() -> None:
    raw = bson.encode({key: value for key, value in bson.decode(event()).items() if key != "wallTime"})
    (row,) = rows(raw)
    assert row["source"]["wall_time"] is None
    assert row["cluster_time"] == datetime.datetime.fromtimestamp(1001, datetime.UTC)


# scenario: B18
def test_document_fields_named_like_the_envelope_stay_in_the_document() -> None:
    (row,) = rows(event(fullDocument={"_id": 1, "op": "x", "ns": {"db": "evil"}, "clusterTime": 5}), stored=True)
    assert (row["op"], row["db"]) == ("c", "shop")
    assert '"op" : "x"' in row["after"]


# scenario: B09
def test_an_event_without_its_token_is_refused() -> None:
    with pytest.raises(MalformedBson, match="no resume token"):
        parse_event(bson.encode({"operationType": "insert"}))


# scenario: B08
def test_unknown_fields_of_an_event_are_stored_unchanged() -> None:
    raw = event("foldCollection", newField={"a": 1}, ns={"db": "shop", "coll": "a", "branch": "b", "kind": 7})
    (row,) = rows(raw)
    assert (row["op"], row["operation_type"], row["db"], row["collection"]) == ("ddl", "foldCollection", "shop", "a")
    assert bytes(row["envelope"]) == raw


# scenario: B11
def test_stored_json_keeps_the_update_description() -> None:
    description = {
        "updatedFields": {"a.b": 1},
        "removedFields": ["c"],
        "truncatedArrays": [{"field": "list", "newSize": 2}],
        "disambiguatedPaths": {"a.b": ["a.b"]},
    }
    (row,) = rows(event("update", updateDescription=description, fullDocument={"_id": 1}), stored=True)
    assert row["update_description"] == {
        "updated_fields": '{ "a.b" : { "$numberInt" : "1" } }',
        "removed_fields": ["c"],
        "truncated_arrays": [{"field": "list", "new_size": 2}],
        "disambiguated_paths": '{ "a.b" : [ "a.b" ] }',
    }
    assert row["document_key"] == '{ "_id" : { "$numberInt" : "1" } }'


# scenario: K03
def test_invalid_utf8_lands_in_the_envelope_and_costs_only_its_json() -> None:
    broken = event(fullDocument={"_id": 1, "t": "XXXX"}).replace(b"XXXX", b"\xff\xfe\xfd\xfc")
    (row,) = rows(broken, stored=True)
    assert row["envelope"] == broken
    assert row["after"] is None
    assert row["document_size"] is not None


def test_a_snapshots_rows_carry_the_time_of_the_read() -> None:
    chunk = ChunkStamp(STAMP, "s1", 3, "shop", "orders", "ab", 1000, 5)
    table = read_table([bson.encode({"_id": n}) for n in range(2)], chunk, stored_json=False)
    found = table.to_pylist()
    assert {row["position"] for row in found} == {"000003e800000005:~"}
    assert [row["key"] for row in found] == ["0", "1"]
    assert {(row["op"], row["batch"], row["chunk"], row["snapshot_id"]) for row in found} == {("r", None, 3, "s1")}
    assert found[0]["envelope"] == bson.encode({"_id": 0})
    (manifest,) = manifest_table(chunk, "chunk", "{}").to_pylist()
    assert (manifest["op"], manifest["operation_type"], manifest["key"]) == ("snapshot", "chunk", None)


def test_lists_of_one_size_carry_what_their_own_chunk_shares() -> None:
    chunks = [ChunkStamp(STAMP, "s1", number, "shop", "orders", "ab", 1000 + number, 5) for number in (1, 2, 1)]
    documents = [[bson.encode({"_id": 10 * number + n}) for n in range(2)] for number in range(3)]
    tables = [
        read_table(some, chunk, stored_json=False).to_pylist() for some, chunk in zip(documents, chunks, strict=True)
    ]
    assert [[(row["chunk"], row["key"], row["position"]) for row in table] for table in tables] == [
        [(1, "0", "000003e900000005:~"), (1, "1", "000003e900000005:~")],
        [(2, "10", "000003ea00000005:~"), (2, "11", "000003ea00000005:~")],
        [(1, "20", "000003e900000005:~"), (1, "21", "000003e900000005:~")],
    ]


FIELDS: dict[str, Any] = {
    "_id": {"_data": "82650C1F00000000052B"},
    "operationType": "update",
    "clusterTime": bson.Timestamp(1_700_000_000, 5),
    "collectionUUID": bson.Binary(bytes(range(16)), 4),
    "wallTime": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    "fullDocument": {"_id": 1, "x": "y"},
    "ns": {"db": "shop", "coll": "orders"},
    "documentKey": {"_id": bson.ObjectId("65a1b2c3d4e5f60718293a4b")},
    "txnNumber": bson.Int64(3),
    "lsid": {"id": 1},
}


@given(st.permutations(list(FIELDS)), st.sets(st.sampled_from(sorted(set(FIELDS) - {"_id"}))))
def test_an_event_with_its_fields_in_another_order_gives_the_same_row(order: list[str], missing: set[str]) -> None:
    usual = parse_event(bson.encode({name: value for name, value in FIELDS.items() if name not in missing}))
    other = parse_event(bson.encode({name: FIELDS[name] for name in order if name not in missing}))
    read = [field.name for field in dataclasses.fields(usual) if field.name not in ("raw", "spans")]
    assert [getattr(other, name) for name in read] == [getattr(usual, name) for name in read]
    assert other.document_size == usual.document_size


@pytest.mark.parametrize(
    "token",
    [{"_data": "82650C", "_typeBits": b"\x01"}, {"_data": "8265", "more": 1}, {"_data": ""}, {"_data": "82\x0065"}],
)
def test_a_token_of_another_shape_is_read_as_well(token: dict[str, Any]) -> None:
    assert parse_event(bson.encode(FIELDS | {"_id": token})).token == token["_data"]
    assert parse_event(bson.encode(FIELDS | {"_id": token})).op == "u"


@given(st.integers(0, len(bson.encode(FIELDS)) - 1))
def test_a_truncated_event_is_refused(length: int) -> None:
    with pytest.raises(MalformedBson):
        parse_event(bson.encode(FIELDS)[:length])
