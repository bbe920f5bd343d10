"""Documents in bronze rows."""

from __future__ import annotations

import bson
import pyarrow as pa
import pytest

from strandline.silver.decode.batch_documents import small_parts
from strandline.silver.decode.document import document_in, with_id_first


@pytest.mark.parametrize(
    "sent",
    [
        {"_id": 1, "q": 1},
        {"q": 1, "_id": 1},
        {"q": {"_id": 7, "x": "_id"}, "_id": {"b": 1, "_id": 2}, "z": [1]},
        {"q": 1},
        {},
    ],
)
def test_the_id_is_the_first_field_as_the_server_stores_it(sent: dict[str, object]) -> None:
    stored = {"_id": sent["_id"], **sent} if "_id" in sent else sent
    assert with_id_first(bson.encode(sent)) == bson.encode(stored)


def test_an_event_of_a_replacement_and_a_read_bring_the_same_document() -> None:
    replaced = bson.encode({"operationType": "replace", "fullDocument": {"q": 1, "_id": 1, "a": 2}})
    stored = bson.encode({"_id": 1, "q": 1, "a": 2})
    assert document_in("u", replaced) == stored == document_in("r", stored)


@pytest.mark.parametrize(
    ("rows", "bytes_of_each", "expected"),
    [
        (5_001, 10, [5_000, 1]),
        (3, 4_000_000, [1, 1, 1]),
        (2, 9_000_000, [1, 1]),
        (10, 1_000_000, [4, 4, 2]),
        (0, 1, []),
    ],
)
def test_parts_hold_a_few_megabytes_or_one_row(rows: int, bytes_of_each: int, expected: list[int]) -> None:
    batch = pa.record_batch({"envelope": pa.array([bytes(bytes_of_each)] * rows, pa.binary()), "row": range(rows)})
    parts = list(small_parts([batch], "envelope"))
    assert [len(part) for part in parts] == expected
    assert [row for part in parts for row in part["row"].to_pylist()] == list(range(rows))


def test_rows_without_a_document_take_no_bytes() -> None:
    batch = pa.record_batch({"envelope": pa.array([None, b"x", None], pa.binary())})
    assert [len(part) for part in small_parts([batch], "envelope")] == [3]
