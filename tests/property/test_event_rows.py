"""The regular expressions and the walk read the same values from any change event, and refuse the same damage."""

from __future__ import annotations

import datetime
from typing import Any

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.bronze import event_row as fast
from strandline.bronze.event import parse_event
from strandline.model.bson.raw import MalformedBson, document_of

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1).map(bson.Int64),
    st.integers(-(2**31), 2**31 - 1),
    st.floats(),
    st.text(max_size=40),
    st.binary(min_size=12, max_size=12).map(bson.ObjectId),
    st.binary(max_size=20),
    st.builds(bson.Timestamp, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
    st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30)),
    st.decimals(allow_nan=True, places=5, min_value=-1000, max_value=1000).map(lambda n: bson.Decimal128(str(n))),
    st.sampled_from([bson.Regex("a"), bson.Code("x"), bson.MinKey(), bson.MaxKey()]),
)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
DOCUMENTS = st.dictionaries(NAMES, VALUES, max_size=4)
IDS = st.one_of(st.binary(min_size=12, max_size=12).map(bson.ObjectId), VALUES, DOCUMENTS)


def session(number: int) -> dict[str, Any]:
    return {"id": bson.Binary(number.to_bytes(16, "big"), 4), "uid": bytes(32)}


USUAL = {
    "txnNumber": st.integers(0, 2**63 - 1).map(bson.Int64),
    "lsid": st.integers(0, 9).map(session),
    "_id": st.fixed_dictionaries({"_data": st.binary(max_size=90).map(lambda data: data.hex().upper())}),
    "operationType": st.sampled_from(["insert", "update", "replace", "delete", "drop", "fromTheFuture"]),
    "clusterTime": st.builds(bson.Timestamp, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
    "collectionUUID": st.binary(min_size=16, max_size=16).map(lambda uuid: bson.Binary(uuid, 4)),
    "wallTime": st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30)),
    "fullDocument": st.none() | DOCUMENTS,
    "ns": st.tuples(NAMES, NAMES).map(lambda names: {"db": names[0], "coll": names[1]}),
    "documentKey": st.fixed_dictionaries({"_id": IDS}),
    "updateDescription": DOCUMENTS,
    "fullDocumentBeforeChange": DOCUMENTS,
}
"""Fields in the order of servers."""
IN_TRANSACTION = {"txnNumber", "lsid"}
OPTIONAL = sorted(set(USUAL) - IN_TRANSACTION - {"_id", "ns", "documentKey", "operationType", "clusterTime"})
OTHER = {
    "_id": st.fixed_dictionaries({"_data": st.text(max_size=20), "_typeBits": st.binary(max_size=3)}),
    "operationType": st.sampled_from(["", "dropDatabase", "a b", "ä", "in\0sert"]),
    "fullDocument": st.text(max_size=3),
    "ns": st.fixed_dictionaries({"db": NAMES}) | DOCUMENTS | st.just({"db": "a", "coll": "a\0b"}),
    "documentKey": st.fixed_dictionaries({"region": VALUES, "_id": IDS}) | DOCUMENTS | st.just({}),
    "splitEvent": st.just({"fragment": 1, "of": 2}),
    "_leftOut": st.just(["fullDocument"]),
    "newField": VALUES,
}


def encoded(fields: list[tuple[str, Any]]) -> bytes:
    """Encode fields in their order. The driver would put `_id` first, and knows no second field of a name."""
    return document_of(bson.encode({name: value})[4:-1] for name, value in fields)


@st.composite
def usual_events(draw: st.DrawFn) -> bytes:
    missing = draw(st.sets(st.sampled_from(OPTIONAL))) | draw(st.sampled_from([set(), IN_TRANSACTION]))
    return encoded([(name, draw(values)) for name, values in USUAL.items() if name not in missing])


@st.composite
def other_events(draw: st.DrawFn) -> bytes:
    """Events in any order, with fields that are missing, repeated, new or of another shape."""
    names = draw(st.permutations(list(USUAL)) | st.lists(st.sampled_from([*USUAL, *OTHER]), max_size=16))
    if draw(st.booleans()):
        names.sort(key=[*USUAL, *OTHER].index)
    return encoded(
        [(name, draw(draw(st.sampled_from([one[name] for one in (USUAL, OTHER) if name in one])))) for name in names]
    )


def outcome(read: Any, raw: bytes) -> object:
    try:
        return read(raw)
    except ValueError as error:
        return type(error), str(error)


def walked(raw: bytes) -> object:
    return fast._walked_row(parse_event(raw))


@given(usual_events())
def test_an_event_as_servers_send_it_needs_no_walk(raw: bytes) -> None:
    assert fast._usual_row(raw) == walked(raw)


@given(other_events())
def test_any_other_event_is_read_as_well(raw: bytes) -> None:
    assert outcome(fast.event_row, raw) == outcome(walked, raw)


@given(usual_events(), st.data())
def test_damage_is_refused_by_both_or_by_none(raw: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(raw) - 1))
    for damaged in (
        raw[:at],
        raw[:at] + bytes([data.draw(st.integers(0, 255))]) + raw[at + 1 :],
        raw[:at] + data.draw(st.binary(max_size=6)) + raw[at:],
        raw + b"\0",
    ):
        assert outcome(fast.event_row, damaged) == outcome(walked, damaged)


@pytest.mark.parametrize("namespace", [None, {}, {"db": "shop"}, {"db": None, "coll": "orders"}])
def test_an_event_without_a_collection_is_left_to_the_walk(namespace: object) -> None:
    raw = bson.encode(
        {"_id": {"_data": "82"}, "operationType": "drop", "clusterTime": bson.Timestamp(1, 2)}
        | {"ns": namespace, "documentKey": {"_id": 1}}
    )
    assert fast._usual_row(raw) is None
    assert outcome(fast.event_row, raw) == outcome(walked, raw)
    if namespace is None:
        with pytest.raises(MalformedBson):
            fast.event_row(raw)


def test_every_event_of_a_large_transaction_is_read_without_a_walk() -> None:
    for number in range(1000):
        fields = {
            "txnNumber": bson.Int64(3),
            "lsid": session(1),
            "_id": {"_data": f"82{number:08X}"},
            "operationType": "insert",
            "clusterTime": bson.Timestamp(1, 2),
            "fullDocument": {"_id": number},
            "ns": {"db": "shop", "coll": "orders"},
            "documentKey": {"_id": number},
        }
        raw = encoded(list(fields.items()))
        assert fast._usual_row(raw) == walked(raw) is not None
