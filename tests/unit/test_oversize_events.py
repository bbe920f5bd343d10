"""Events above 16 MiB: located, stripped or joined from fragments. And documents that JSON cannot represent."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymongo import errors as mongo

from strandline.bronze.event import parse_event
from strandline.errors import ConfigurationError, ContractError
from strandline.jobs.capture.oversize_events import check_oversize
from strandline.model.bson.poison import json_problem
from strandline.settings.capture import CaptureSettings
from strandline.silver.schema.census import Census, CensusTaker
from strandline.source.deployment import Deployment
from strandline.source.event_assembler import EventAssembler
from strandline.source.oversize_events import Fragments, OversizeLocator, stripped_event

EVENT: dict[str, Any] = {
    "_id": {"_data": "8201"},
    "operationType": "update",
    "clusterTime": bson.Timestamp(7, 1),
    "ns": {"db": "shop", "coll": "orders"},
    "documentKey": {"_id": 5},
    "fullDocument": {"_id": 5, "text": "x" * 100},
    "fullDocumentBeforeChange": {"_id": 5, "text": "x" * 200},
    "updateDescription": {"updatedFields": {"text": "x" * 100}},
}


def fragments_of(event: dict[str, Any], *cuts: int) -> list[bytes]:
    """Split an event as the server does: whole fields, a token in each fragment."""
    names = [name for name in event if name != "_id"]
    bounds = [0, *cuts, len(names)]
    of = len(bounds) - 1
    return [
        bson.encode(
            {"_id": {"_data": f"{event['_id']['_data']}{number:02}"}, "splitEvent": {"fragment": number, "of": of}}
            | {name: event[name] for name in names[bounds[number - 1] : bounds[number]]}
        )
        for number in range(1, of + 1)
    ]


# scenario: J04, J05
@given(st.lists(st.integers(0, len(EVENT) - 1), max_size=4))
def test_fragments_make_one_event_with_the_token_of_the_last_fragment(cuts: list[int]) -> None:
    parts = fragments_of(EVENT, *sorted(cuts))
    fragments = Fragments()
    *early, whole = [fragments.add(part) for part in parts]
    assert early == [None] * (len(parts) - 1)
    assert whole is not None
    assert not fragments.is_incomplete
    assert bson.decode(whole) == EVENT | {"_id": {"_data": f"8201{len(parts):02}"}}


# scenario: J04, J08
def test_an_event_is_incomplete_between_fragments_and_a_missing_fragment_is_an_error() -> None:
    first, second, third = fragments_of(EVENT, 2, 4)
    fragments = Fragments()
    assert fragments.add(bson.encode(EVENT)) == bson.encode(EVENT)
    assert fragments.add(first) is None
    assert fragments.is_incomplete
    for wrong in (third, first, bson.encode(EVENT)):
        fragments = Fragments()
        fragments.add(first)
        with pytest.raises(ContractError, match="do not follow"):
            fragments.add(wrong)
    with pytest.raises(ContractError):
        Fragments().add(second)


def test_a_stripped_event_keeps_key_and_position_and_lists_what_is_missing() -> None:
    stripped = stripped_event(bson.encode(EVENT))
    event = parse_event(stripped)
    assert (event.op, event.operation_type, event.key, event.position) == (
        "oversize",
        "update",
        "5",
        "0000000700000001:8201",
    )
    assert bson.decode(stripped)["_leftOut"] == ["fullDocument", "fullDocumentBeforeChange", "updateDescription"]
    assert b"xxx" not in stripped
    # A delete needs nothing but its key.
    assert parse_event(stripped_event(bson.encode(EVENT | {"operationType": "delete"}))).op == "d"


@pytest.mark.parametrize(
    ("version", "splits"),
    [
        ("6.0.5", False),
        ("6.0.9", True),
        ("6.0.10-rc0", True),
        ("7.0.0", True),
        ("5.0.30", False),
        ("8.1.0-alpha", True),
    ],
)
def test_servers_from_6_0_9_split_large_events(version: str, splits: bool) -> None:
    assert Deployment(version, "rs", False, "id").splits_large_events is splits


def test_the_oversize_event_is_located_with_replies_of_one_event() -> None:
    locator = OversizeLocator(ahead=10)
    assert not locator.record_received(3)
    assert locator.record_refusal() == 0  # a reply of many events failed: the event is one of them
    assert locator.is_active
    assert not locator.record_received(4)
    assert locator.record_refusal() == 1  # a reply of one event failed: it is this one
    assert locator.record_received(1)  # its document is smaller by now
    assert not locator.is_active
    locator.record_refusal()
    assert [locator.record_received(5), locator.record_received(5)] == [
        False,
        True,
    ]  # all events of the failed reply have come
    locator.record_refusal()
    assert locator.record_received(0)  # the end of the stream


def test_only_the_third_lost_connection_may_be_an_oversize_event_and_never_one_with_a_reason() -> None:
    locator, lost = OversizeLocator(ahead=10), mongo.AutoReconnect("connection closed")
    assert [locator.may_explain(lost) for _ in range(3)] == [False, False, True]
    assert not locator.may_explain(mongo.ServerSelectionTimeoutError("nobody"))
    assert not locator.may_explain(mongo.OperationFailure("history lost", 286))
    assert locator.may_explain(mongo.OperationFailure("too large", 10334))
    assert not locator.explains(lost, b"a small event")
    assert locator.explains(lost, bytes(2 * 1024 * 1024))


def assembler(**options: Any) -> EventAssembler:
    return EventAssembler(lambda event: event, **({"split": False, "skip_threshold": 0, "strict": False} | options))


def test_documents_above_the_threshold_are_left_out() -> None:
    raw = bson.encode(EVENT)
    below, between, above = (assembler(skip_threshold=size) for size in (1000, 150, 100))
    assert (below.add(raw), below.oversize_events) == (raw, [])
    without_pre_image = between.add(raw)
    assert without_pre_image is not None
    assert bson.decode(without_pre_image) == {name: EVENT[name] for name in EVENT if name != "fullDocumentBeforeChange"}
    assert above.add(raw) == stripped_event(raw)
    assert [
        (event.document_bytes, event.refused_by_server) for event in (*between.oversize_events, *above.oversize_events)
    ] == [(225, False)] * 2


BROKEN = bson.encode({"_id": 5, "text": "XXXX"}).replace(b"XXXX", b"\xff\xfe\xfd\xfc")
TWICE = bson.encode({"_id": 5, "in": {"a": 1, "b": 2}}).replace(b"\x10b\0", b"\x10a\0")
DEEP: dict[str, Any] = {}
for _ in range(170):
    DEEP = {"d": DEEP}
FINE: list[dict[str, Any]] = [
    {"a": "é\0🛫", "": 1, "a.b": 1, "$set": 1, "A": 1, "new\nline": 1},
    {"date": bson.DatetimeMS(2**62), "mixed": [1, "x", None, [{}]]},
    {"code": bson.Code("f", {"x": 1}), "re": bson.Regex("a", "imx"), "bin": bson.Binary(b"\xff", 6)},
    DEEP,
]


# scenario: K03, K05, K07, K08, K09
def test_documents_that_json_can_represent_are_no_poison() -> None:
    documents = [bson.encode(document) for document in FINE]
    assert [json_problem(document) for document in documents] == [None] * len(FINE)
    assert not CensusTaker(8).count(documents).holds_poison


@pytest.mark.parametrize(
    "document",
    [
        BROKEN,
        TWICE,
        bson.encode({"_id": 1, "name": 1}).replace(b"name", b"n\xffme"),
        bson.encode({"deep": {"b": {"c": "XXXX"}}}).replace(b"XXXX", b"\xff\xfe\xfd\xfc"),
        bson.encode({"list": [1, "XXXX"]}).replace(b"XXXX", b"\xff\xfe\xfd\xfc"),
        bson.encode({"code": bson.Code("XXXX")}).replace(b"XXXX", b"\xff\xfe\xfd\xfc"),
    ],
)
@pytest.mark.parametrize("depth", [1, 8])
def test_the_census_notices_poison_wherever_it_is(document: bytes, depth: int) -> None:
    assert json_problem(document) is not None
    census = CensusTaker(depth).count([document])
    assert census.holds_poison
    merged = CensusTaker(depth).count([bson.encode({"_id": 1})])
    merged.merge(Census.from_json(census.to_json()))
    assert merged.holds_poison


# scenario: K02, K04
def test_strict_fails_at_poison_and_names_the_document_without_its_values() -> None:
    fine = bson.encode(EVENT)
    assert assembler(strict=True).add(fine) == fine
    poisoned = bson.encode(EVENT | {"fullDocument": bson.raw_bson.RawBSONDocument(BROKEN)})
    assert assembler().add(poisoned) == poisoned
    with pytest.raises(ContractError, match=r"the document with key #ef2d127de37b of shop\.orders") as refused:
        assembler(strict=True).add(poisoned)
    assert "errors_tolerance" in refused.value.next_step


# scenario: J04
def test_split_is_refused_where_the_server_cannot_and_a_threshold_where_nothing_is_skipped() -> None:
    old, new = Deployment("6.0.5", "rs", False, "id"), Deployment("7.0.2", "rs", False, "id")
    check_oversize(CaptureSettings(cursor_oversize_handling_mode="split"), new)
    with pytest.raises(
        ConfigurationError, match=r"split needs \$changeStreamSplitLargeEvent, which MongoDB 6\.0\.5 does not have"
    ):
        check_oversize(CaptureSettings(cursor_oversize_handling_mode="split"), old)
    with pytest.raises(ConfigurationError, match="without"):
        check_oversize(CaptureSettings(cursor_oversize_skip_threshold=1000), new)
