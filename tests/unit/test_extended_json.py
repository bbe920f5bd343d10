"""Extended JSON in Debezium's modes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson import json_util
from bson.binary import Binary
from bson.code import Code
from bson.dbref import DBRef
from bson.decimal128 import Decimal128
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp

from strandline.model.bson.extended_json import WRITERS, JsonMode, strict_json

OID = ObjectId("596e275826f08b2730779e1f")
MOMENT = datetime.fromtimestamp(1783101585.729, UTC)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (10.0, "10.0"),
        (-0.5, "-0.5"),
        (0.0, "0.0"),
        (1.2345678e7, "1.2345678E7"),
        (1e20, "1.0E20"),
        (1e-5, "1.0E-5"),
        (0.0012, "0.0012"),
        (float("nan"), '{"$numberDouble": "NaN"}'),
        (float("-inf"), '{"$numberDouble": "-Infinity"}'),
        ('é"\n', '"é\\"\\n"'),
        ({}, "{}"),
        ([1, [2.5, "x"], {"a": None, "b": True}], '[1, [2.5, "x"], {"a": null,"b": true}]'),
        (Binary(b"kafka", 0), '{"$binary": "a2Fma2E=","$type": "00"}'),
        (Binary(b"kafka", 2), '{"$binary": "a2Fma2E=","$type": "02"}'),
        (Binary(b"x", 0xAB), '{"$binary": "eA==","$type": "AB"}'),
        (OID, '{"$oid": "596e275826f08b2730779e1f"}'),
        (False, "false"),
        (MOMENT, '{"$date": 1783101585729}'),
        (Regex("^a/b", "im"), '{"$regex": "^a/b","$options": "im"}'),
        (Code("f()"), '{"$code": "f()"}'),
        (Code("f(x)", {"x": bson.Int64(1)}), '{"$code": "f(x)","$scope": {"x": {"$numberLong": "1"}}}'),
        (-7, "-7"),
        (Timestamp(1, 2), '{"$timestamp": {"t": 1,"i": 2}}'),
        (bson.Int64(-5_000_000_000), '{"$numberLong": "-5000000000"}'),
        (Decimal128("1.10"), '{"$numberDecimal": "1.10"}'),
        (Decimal128("NaN"), '{"$numberDecimal": "NaN"}'),
        (MinKey(), '{"$minKey": 1}'),
        (MaxKey(), '{"$maxKey": 1}'),
        (DBRef("c", 1), '{"$ref": "c","$id": 1}'),
    ],
    ids=str,
)
def test_every_type_has_its_strict_form(value: Any, expected: str) -> None:
    assert strict_json(bson.encode({"v": value})) == f'{{"v": {expected}}}'


@pytest.mark.parametrize(
    ("element", "expected"),
    [
        (b"\x06v\0", '{"$undefined": true}'),
        (b"\x0ev\0\x02\0\0\0s\0", '{"$symbol": "s"}'),
        (b"\x0cv\0\x02\0\0\0c\0" + OID.binary, '{"$ref": "c","$id": {"$oid": "596e275826f08b2730779e1f"}}'),
    ],
)
def test_types_that_no_driver_writes_any_more_have_their_strict_form(element: bytes, expected: str) -> None:
    document = (len(element) + 5).to_bytes(4, "little") + element + b"\0"
    assert strict_json(document) == f'{{"v": {expected}}}'


def test_a_repeated_name_is_written_twice_and_invalid_utf8_is_refused() -> None:
    twice = bson.encode({"a": 1, "b": 2}).replace(b"b\0", b"a\0")
    assert strict_json(twice) == '{"a": 1,"a": 2}'
    for broken in (
        bson.encode({"a": "XX"}).replace(b"XX", b"\xff\xfe"),
        bson.encode({"XX": 1}).replace(b"XX", b"\xff\xfe"),
    ):
        for writers in WRITERS.values():
            with pytest.raises(ValueError, match=r"."):
                writers.document(broken)


@pytest.mark.parametrize(
    ("mode", "document", "updated_fields"),
    [
        ("legacy", 1783101585729, "2026-07-03T17:59:45.729Z"),
        ("strict", 1783101585729, 1783101585729),
        ("extended", {"$numberLong": "1783101585729"}, {"$numberLong": "1783101585729"}),
        ("relaxed", "2026-07-03T17:59:45.729Z", "2026-07-03T17:59:45.729Z"),
    ],
)
def test_a_mode_writes_dates_as_debeziums_documentation_shows(
    mode: JsonMode, document: Any, updated_fields: Any
) -> None:
    raw = bson.encode({"timestamp": MOMENT})
    assert json.loads(WRITERS[mode].document(raw)) == {"timestamp": {"$date": document}}
    assert json.loads(WRITERS[mode].updated_fields(raw)) == {"timestamp": {"$date": updated_fields}}


@pytest.mark.parametrize("mode", WRITERS)
def test_a_driver_reads_every_mode(mode: JsonMode) -> None:
    document = {
        "_id": OID,
        "n": bson.Int64(7),
        "at": MOMENT,
        "b": Binary(b"x", 5),
        "r": Regex("a", "i"),
        "d": [1.5, {"k": Decimal128("2")}],
    }
    options = json_util.JSONOptions(tz_aware=True)
    assert json_util.loads(WRITERS[mode].document(bson.encode(document)), json_options=options) == document


def test_a_document_as_deep_as_mongodb_stores_one_is_written_deep_in_a_stack() -> None:
    deep: Any = 1
    for level in range(200):
        deep = {"a": deep} if level % 2 else [deep]

    def below(frames: int) -> str:
        return strict_json(bson.encode({"v": deep})) if frames == 0 else below(frames - 1)

    assert below(300).count("[") == 100
