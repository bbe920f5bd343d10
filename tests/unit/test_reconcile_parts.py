"""`reconcile`: order of `_id`s, ranges, digests, and rows for absent documents."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import bson
import pyarrow as pa
import pytest
from bson.binary import Binary
from bson.decimal128 import Decimal128
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from strandline.bronze.chunk_rows import ChunkStamp, absent_table
from strandline.bronze.envelope import Stamp
from strandline.io.tables.delta_schema import delta_schema
from strandline.jobs.reconcile.engines import spark_type
from strandline.model.bson.id_order import RangeFinder, id_document, id_order
from strandline.model.bson.raw import MalformedBson
from strandline.model.range_digest import RangeDigest, digest
from strandline.model.table_schemas import RECONCILE_DDL
from strandline.silver.reconcile_diff import (
    FACTS,
    REPORT,
    WAITING_RANGE,
    adding,
    comparing,
    identified,
    in_ranges,
    listing,
    source_batch,
    summing,
    sums_in,
)
from strandline.source.document_reread import portions

IN_ORDER: list[Any] = [
    MinKey(),
    None,
    float("nan"),
    float("-inf"),
    Decimal128("-1E30"),
    -3,
    Decimal128("0.5"),
    1,
    2.5,
    2**60,
    float(2**61),
    Decimal128("Infinity"),
    "",
    "A",
    "a",
    "aa",
    "é",
    {},
    {"a": 1},
    {"a": 1, "b": 1},
    {"b": 0},
    {"a": "text"},
    Binary(b"zz", 0),
    Binary(b"aaa", 0),
    Binary(b"aaa", 5),
    ObjectId("000000000000000000000001"),
    ObjectId("ff0000000000000000000000"),
    False,
    True,
    datetime(1950, 1, 1, tzinfo=UTC),
    datetime(2020, 1, 1, tzinfo=UTC),
    Timestamp(1, 2),
    Timestamp(2, 1),
    MaxKey(),
]


def document(identifier: Any, **fields: Any) -> bytes:
    return bson.encode({"_id": identifier, **fields})


def test_identifiers_sort_as_in_mongodb() -> None:
    documents = [document(identifier) for identifier in IN_ORDER]
    shuffled = random.Random(7).sample(documents, len(documents))
    assert sorted(shuffled, key=id_order) == documents
    assert id_order(document(1)) == id_order(document(1.0, x=2)) == id_order(document(Decimal128("1.00")))
    with pytest.raises(MalformedBson):
        id_order(bson.encode({"a": 1}))


def test_a_document_is_counted_in_the_range_whose_lower_bound_it_reaches() -> None:
    finder = RangeFinder([document(10), document("m")])
    assert [finder.number(document(value)) for value in (None, 9, 10, 10.5, "a", "m", MaxKey())] == [
        0,
        0,
        1,
        1,
        1,
        2,
        2,
    ]
    assert [RangeFinder([]).number(document(value)) for value in (1, "x")] == [0, 0]


@given(
    st.lists(st.sampled_from(IN_ORDER) | st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3), max_size=60),
    st.lists(st.sampled_from(IN_ORDER) | st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3), max_size=4),
)
def test_documents_are_assigned_to_ranges_together_as_alone(identifiers: list[Any], bounds: list[Any]) -> None:
    finder = RangeFinder(sorted(map(document, bounds), key=id_order))
    documents = [document(value, a=1) for value in identifiers] + [bson.encode({"a": 1, "_id": 2})]
    numbers = finder.numbers(pa.array(documents, pa.binary())).tolist()
    assert numbers == [finder.number(one) for one in documents]


# scenario: T08
def test_only_differing_ranges_are_compared_and_rows_that_changed_since_are_left_out() -> None:
    facts = [
        ("1", "5", False, document(1)),
        ("2", "5", False, document(2, v=1)),
        ("3", "9", False, document(3)),  # changed after the read
        ("4", "9", True, document(4)),  # deleted after the read
        ("5", "5", False, None),  # has no document yet
        ("6", "5", True, document(6)),
        ("11", "5", False, document(11)),
        ("8", "1", False, document(8)),  # of an earlier life
    ]
    rows = pa.Table.from_pylist([dict(zip(FACTS, row, strict=True)) for row in facts]).to_batches(max_chunksize=3)
    bounds = [document(10)]
    parts = [part for batch in rows for part in summing(bounds, {0: "7", 1: "7"}, "1")(iter([batch]))]
    assert sums_in(adding(iter(parts))) == {
        0: RangeDigest.of([document(1), document(2, v=1)]),
        1: RangeDigest.of([document(11)]),
        WAITING_RANGE: RangeDigest.of([b""]),
    }
    parts = [part for batch in rows for part in summing(bounds, {1: "7"}, "1")(iter([batch]))]
    assert sums_in(parts).keys() == {1, WAITING_RANGE}, "other ranges are left out"
    kept = [key for batch in in_ranges(bounds, [1])(iter(rows)) for key in batch["_key"].to_pylist()]
    assert kept == ["11"]

    there = source_batch([document(number) for number in (1, 2, 3, 4, 7)], ["1", "2", "3", "4", "7"])
    both = [there, *listing(bounds, [0], "7", "1")(iter(rows))]
    found = [tuple(row.values()) for batch in comparing(iter(both)) for row in batch.to_pylist()]
    assert sorted(found) == [
        ("2", "different", document(2), "5"),
        ("5", "extra", None, "5"),
        ("7", "missing", document(7), None),
    ]
    of_ranges = [row["key"] for batch in identified(comparing(iter(both))) for row in batch.to_pylist()]
    assert sorted(of_ranges) == ["2", "7"], "a row without a document may be of a range that is not compared"
    assert [len(batch) for batch in comparing(iter([there, *listing(bounds, [], "7", "9")(iter(rows))]))] == [5]
    assert list(comparing(iter([]))) == []


def test_a_digest_is_independent_of_order_and_batches_and_shows_every_change() -> None:
    documents = [document(number, v=number) for number in range(100)]
    whole = RangeDigest.of(documents)
    assert RangeDigest.of(reversed(documents[:50])) + RangeDigest.of(documents[50:]) == whole
    assert RangeDigest.from_hex(whole.documents, whole.to_hex()) == whole
    assert RangeDigest.of([*documents[:99], document(99, v=100)]) != whole
    assert RangeDigest.of([*documents[:99], documents[0]]) != whole
    assert len(digest(b"")) == 16


def test_the_rows_of_a_report_have_the_columns_of_the_table() -> None:
    columns = ", ".join(f"{field.name} {spark_type(field.type)}" for field in REPORT)
    assert [(field.name, field.type) for field in delta_schema(columns).fields] == [
        (field.name, field.type) for field in delta_schema(RECONCILE_DDL).fields
    ]


def test_portions_fit_into_a_command() -> None:
    identifiers = [document(number) for number in range(2_500)]
    assert [len(portion) for portion in portions(identifiers)] == [1_000, 1_000, 500]
    large = [document("x" * 3_000_000), document("y" * 3_000_000)]
    assert [len(portion) for portion in portions(large)] == [1, 1]
    assert list(portions([])) == []


def test_an_absent_document_is_a_delete_at_the_cluster_time_of_the_read() -> None:
    chunk = ChunkStamp(Stamp("shop", "run", 1), "reconcile", 0, "shop", "orders", "ab", 1000, 5)
    (row,) = absent_table([id_document(document(7, a=1)).hex()], chunk).to_pylist()
    assert (row["op"], row["operation_type"], row["position"], row["envelope"]) == ("d", "absent", chunk.position, None)
    assert id_document(document(7, a=1)) == document(7)
