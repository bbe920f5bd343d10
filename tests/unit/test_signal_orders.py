"""Parsing of signals: Debezium's words and fields. An invalid signal is refused and raises no error."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bson
import pytest
from bson.errors import InvalidBSON
from bson.raw_bson import RawBSONDocument
from pydantic import ValidationError

from strandline.control.signal_inbox import SignalFile, from_document, signal_of_line
from strandline.jobs.capture.filter_changes import earlier_selection, filters_to_json
from strandline.jobs.capture.source_signals import is_signal, signal_of
from strandline.model.namespaces import Namespace
from strandline.model.signal import (
    CollectionPatterns,
    ExecuteSnapshot,
    LogMessage,
    Order,
    RejectedSignal,
    SetPaused,
    Signal,
    StopSnapshot,
    parse_signal,
)
from strandline.settings.capture import CaptureSettings
from strandline.source.stages import Selection, stream_stages


def order(kind: str | None, data: Any) -> Order:
    return parse_signal(Signal("1", kind, data if isinstance(data, str | None) else json.dumps(data)))


ALL = CollectionPatterns(("shop\\..*",))
DEEP = '{"a":' * 600 + "1" + "}" * 600


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        ("execute-snapshot", {"data-collections": ["shop\\..*"]}, ExecuteSnapshot("incremental", ALL)),
        ("execute-snapshot", {"data-collections": ["shop\\..*"], "type": "BLOCKING"}, ExecuteSnapshot("blocking", ALL)),
        (
            "execute-snapshot",
            {"data-collections": ["shop\\..*"], "replace": True},
            ExecuteSnapshot("incremental", ALL, replaces=True),
        ),
        ("stop-snapshot", {"type": "incremental"}, StopSnapshot(None)),
        ("stop-snapshot", {"type": "INCREMENTAL", "data-collections": ["shop\\..*"]}, StopSnapshot(ALL)),
        ("pause-snapshot", None, SetPaused(paused=True)),
        ("resume-snapshot", {"type": "incremental"}, SetPaused(paused=False)),
        ("log", {"message": "hello"}, LogMessage("hello")),
    ],
)
def test_each_signal_is_parsed_as_debezium_parses_it(kind: str, data: Any, expected: Order) -> None:
    assert order(kind, data) == expected


# scenario: N06, U13
@pytest.mark.parametrize(
    ("kind", "data", "reason"),
    [
        ("snapshot", {}, "unknown type 'snapshot'"),
        (None, {}, "unknown type None"),
        ("log", "{", "data is no JSON"),
        ("log", "[1]", "data is no JSON object"),
        ("log", "[" * 100_000, "data is nested too deeply"),
        ("stop-snapshot", {}, "needs a type"),
        ("stop-snapshot", {"type": "incremental", "data-colections": ["a"]}, "unknown fields in data: data-colections"),
        ("execute-snapshot", {"data-collections": []}, "data-collections is empty"),
        ("execute-snapshot", {"data-collections": ["a"], "replace": "yes"}, "replace is neither true nor false"),
        (
            "execute-snapshot",
            {
                "data-collections": ["a"],
                "replace": True,
                "additional-conditions": [{"data-collection": "a", "filter": "{}"}],
            },
            "replaces reads every document: leave out the filter",
        ),
        ("execute-snapshot", {"data-collections": "shop.a"}, "is no list of texts"),
        ("execute-snapshot", {"data-collections": ["("], "type": "full"}, "unknown snapshot type 'full'"),
        *(
            ("execute-snapshot", {"data-collections": [pattern]}, problem)
            for pattern, problem in {
                "(": "no regular expression",
                "a{99999999999999999999}": "no regular expression",
                "(?u)a": "no regular expression",
                "(" * 5000 + ")" * 5000: "nested too deeply",
                "shop[.](?!tmp).*": "a construct that signals do not take",
                r"(a)\1": "a construct that signals do not take",
                "\ud800": "is no text",
            }.items()
        ),
        (
            "execute-snapshot",
            {
                "data-collections": ["a"],
                "additional-conditions": [{"data-collection": "a{99999999999999999999}", "filter": "{}"}],
            },
            "no regular expression",
        ),
        (
            "execute-snapshot",
            f'{{"data-collections": ["a"], "additional-conditions": [{{"data-collection": "a", "filter": {DEEP}}}]}}',
            "the filter of condition 1 is no JSON of a document",
        ),
        ("execute-snapshot", {"data-collections": ["a"], "additional-conditions": "x"}, "is no list"),
        (
            "execute-snapshot",
            {"data-collections": ["a"], "additional-conditions": [{"filter": "{}"}]},
            "condition 1 is no object",
        ),
        *(
            (
                "execute-snapshot",
                {"data-collections": ["a"], "additional-conditions": [{"data-collection": "a", "filter": query}]},
                f"the filter of condition 1 {problem}",
            )
            for query, problem in {
                "{": "is no JSON",
                '{"$where": "sleep(1)"}': "uses $where",
                '{"$or": [{"a": {"$function": {}}}]}': "uses $function",
                '{"a": {"$out": "b"}}': "uses $out",
                '{"$expr": {"$divide": ["$a", 0]}}': "uses $expr",
                DEEP: "is no JSON of a document",
            }.items()
        ),
    ],
)
def test_an_invalid_signal_is_refused_with_a_reason(kind: str, data: Any, reason: str) -> None:
    refused = order(kind, data)
    assert isinstance(refused, RejectedSignal)
    assert reason in refused.reason


@pytest.mark.parametrize(
    "line", ["[" * 100_000, f'{{"type": "log", "data": {DEEP}}}', '{"id": "\\u00', "[]", "7", "\\"]
)
def test_an_unreadable_line_is_a_refused_signal(line: str) -> None:
    assert isinstance(parse_signal(signal_of_line(line.encode(), Path("signals.jsonl"))), RejectedSignal)


# scenario: M09
def test_lines_of_a_file_are_found_once_whether_it_is_appended_to_or_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "signals.jsonl"
    file = SignalFile(path)

    assert file.new_signals() == []
    for mode, text, expected in (
        ("a", '{"id": "1"}\n', ["1"]),
        ("a", "", []),
        ("a", '{"id": "2"}\n\n{"id":', ["2"]),
        ("a", ' "3"}\n', ["3"]),
        ("w", '{"id": "4"}\n{"id": "5"}\n{"id": "6"}\n{"id": "7"}\n', ["4", "5", "6", "7"]),
        ("w", '{"id": "4"}\n{"id": "5"}\n{"id": "8"}\n{"id": "7"}\n', ["4", "5", "8", "7"]),
        ("w", '{"id": "9"}\n', ["9"]),
        ("w", '{"id": "9"}\n{"id": "10"}\n', ["10"]),
        ("w", "", []),
        ("a", '{"id": "9"}\n', ["9"]),
    ):
        with path.open(mode, encoding="utf-8") as lines:
            lines.write(text)
        assert [signal.id for signal in file.new_signals()] == expected, text
        assert file.new_signals() == []


def test_a_line_with_half_a_character_can_be_stored() -> None:
    line = json.dumps({"id": "1\ud800", "type": "log\ud800", "data": '{"message": "\ud800"}'})
    found = signal_of_line(line.encode(), Path("signals.jsonl"))
    assert (found.id, found.type, found.data) == ("1?", "log?", '{"message": "?"}')


def test_names_are_anchored_patterns_and_quoted_ones_are_names() -> None:
    parsed = order(
        "execute-snapshot",
        {
            "data-collections": ["shop\\.a", '"shop"."my.b(1)"'],
            "additional-conditions": [{"data-collection": "shop\\.a", "filter": {"n": {"$gt": {"$numberLong": "4"}}}}],
        },
    )
    assert isinstance(parsed, ExecuteSnapshot)
    assert [parsed.collections.match(name) for name in ("shop.a", "shop.aa", "shop.my.b(1)", "shop.myxb(1)")] == [
        True,
        False,
        True,
        False,
    ]
    assert parsed.query_of("shop.a") == '{"n": {"$gt": {"$numberLong": "4"}}}'
    assert parsed.query_of("shop.my.b(1)") is None


def test_a_signal_without_an_id_is_identified_by_its_content() -> None:
    now = datetime.now(UTC)
    twins = [Signal(None, "log", "{}", now), Signal("", "log", "{}", now)]
    assert len({signal.key for signal in twins}) == 1
    assert Signal(None, "log", '{"message": ""}', now).key != twins[0].key
    assert Signal("7", "log", None).key == "7"


# scenario: M09
def test_signals_of_the_source_arrive_although_their_collection_is_excluded() -> None:
    signals = Namespace("shop", "signals")
    selection = Selection.of("database", "shop", excluded_collections=["shop\\.signals"], signals=signals)
    (match,) = stream_stages(selection)
    assert {"operationType": "insert", "ns.db": "shop", "ns.coll": "signals"} in match["$match"]["$or"]
    document = {"_id": bson.ObjectId(b"x" * 12), "type": "log", "data": {"message": "hi"}}
    event = {"operationType": "insert", "ns": {"db": "shop", "coll": "signals"}, "fullDocument": document}
    assert is_signal(bson.encode(event), signals)
    found = signal_of(bson.encode(event))
    assert (found.id, found.type, found.data, found.channel) == (
        f'{{"$oid": "{document["_id"]}"}}',
        "log",
        '{"message": "hi"}',
        "source",
    )
    for other in ({**event, "operationType": "update"}, {**event, "ns": {"db": "shop", "coll": "signal"}}):
        assert not is_signal(bson.encode(other), signals)
    assert from_document({"data": '{"message": 1}'}, "1", "f", "file").data == '{"message": 1}'


def test_a_signal_of_the_source_that_cannot_be_decoded_is_refused() -> None:
    inner = b"\x05data\0" + (8).to_bytes(4, "little") + b"\x02" + (99).to_bytes(4, "little") + b"abcd"
    document = (len(inner) + 5).to_bytes(4, "little") + inner + b"\0"
    event = bson.encode({"operationType": "insert", "fullDocument": RawBSONDocument(document)})
    with pytest.raises(InvalidBSON):
        bson.decode(event)
    found = signal_of(event)
    assert isinstance(parse_signal(found), RejectedSignal)
    assert (found.id, len(found.id or "")) == (signal_of(event).id, 64)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"signal_enabled_channels": "table, source"}, "signal_data_collection and the channel 'source'"),
        ({"signal_file": "signals.jsonl"}, "signal_file and the channel 'file'"),
        ({"signal_enabled_channels": "kafka"}, "Input should be 'table', 'file' or 'source'"),
        ({"signal_enabled_channels": "source", "signal_data_collection": "signals"}, "is no database.collection"),
    ],
)
def test_a_channel_and_where_it_comes_from_need_each_other(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        CaptureSettings(**settings)


# scenario: A16, A17
def test_the_stored_filters_of_an_earlier_run_restore_its_selection() -> None:
    earlier = Selection.of("database", "shop", collections=["shop\\.[ab]"], excluded_databases=["x"])
    again = earlier_selection(Selection.of("database", "shop", match_mode="literal"), filters_to_json(earlier))
    assert [again.admits("shop", name) for name in ("a", "b", "c")] == [True, True, False]
    assert filters_to_json(again) == filters_to_json(earlier)


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(.*a){20}b", "(a?){250}b", ".*.*.*.*.*.*b"])
def test_a_pattern_that_backtracks_for_years_is_matched_at_once(pattern: str) -> None:
    name = "shop." + "a" * 250
    began = time.monotonic()
    assert parsed_patterns(pattern, "shop[.]b").matching([name, "shop.b"]) >= {"shop.b"}
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("shop[.].*", {"shop.a", "shop.A", "shop.a.b"}),
        ("shop.a", {"shop.a"}),
        ("shop[.]a|x", {"shop.a"}),
        ("(?i)SHOP[.]a", {"shop.a", "shop.A"}),
        ('"shop"."a.b"', {"shop.a.b"}),
        ('"shop".".*"', set()),
        (" shop[.]a ", {"shop.a"}),
    ],
)
def test_a_pattern_matches_whole_names(pattern: str, matched: set[str]) -> None:
    assert parsed_patterns(pattern).matching(["shop.a", "shop.A", "shop.a.b", "my.shop.a"]) == matched


def parsed_patterns(*patterns: str) -> CollectionPatterns:
    parsed = order("execute-snapshot", {"data-collections": patterns})
    assert isinstance(parsed, ExecuteSnapshot)
    return parsed.collections
