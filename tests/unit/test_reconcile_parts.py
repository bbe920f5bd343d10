"""`reconcile`: order of `_id`s, ranges, digests, and rows for absent documents."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson.binary import Binary
from bson.decimal128 import Decimal128
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.timestamp import Timestamp

from strandline.bronze.chunk_rows import ChunkStamp, absent_table
from strandline.bronze.envelope import Stamp
from strandline.jobs.reconcile.repair import portions
from strandline.model.bson.id_order import RangeFinder, id_document, id_order
from strandline.model.bson.raw import MalformedBson
from strandline.model.range_digest import RangeDigest, digest

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


def test_a_digest_is_independent_of_order_and_batches_and_shows_every_change() -> None:
    documents = [document(number, v=number) for number in range(100)]
    whole = RangeDigest.of(documents)
    assert RangeDigest.of(reversed(documents[:50])) + RangeDigest.of(documents[50:]) == whole
    assert RangeDigest.from_hex(whole.documents, whole.to_hex()) == whole
    hexes = [RangeDigest.of([document]).to_hex() for document in documents]
    parts = [sum(int(text[at : at + 8], 16) for text in hexes) for at in range(0, 32, 8)]
    assert RangeDigest.from_parts(len(documents), parts) == whole
    assert RangeDigest.of([*documents[:99], document(99, v=100)]) != whole
    assert RangeDigest.of([*documents[:99], documents[0]]) != whole
    assert len(digest(b"")) == 16


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
