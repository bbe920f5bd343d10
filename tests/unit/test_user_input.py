"""User input is accepted or refused with an error of one line."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bson
import pytest
from bson import json_util
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from strandline.control.signal_inbox import signal_of_line
from strandline.errors import ConfigurationError
from strandline.gold.cases import parse_cases
from strandline.jobs.capture.source_signals import signal_of
from strandline.jobs.offset_target import offset_target
from strandline.jobs.snapshot.send_signal import conditions_of
from strandline.model.json_input import parse_extended_json
from strandline.model.signal import ExecuteSnapshot, Signal, parse_signal
from strandline.model.snapshot_policy import query_document, query_problems
from strandline.model.timestamps import parse_time, seconds_of
from strandline.model.user_pipeline import parse_user_pipeline
from strandline.quality.rules import parse_suites
from strandline.settings.configuration import load_settings
from strandline.source.resume import ResumePoint

_TYPES = (
    "oid",
    "numberDecimal",
    "numberInt",
    "numberLong",
    "numberDouble",
    "date",
    "timestamp",
    "binary",
    "uuid",
    "regularExpression",
    "code",
)
_MORE = (
    "scope",
    "symbol",
    "dbPointer",
    "ref",
    "id",
    "minKey",
    "undefined",
    "type",
    "regex",
    "options",
    "where",
    "and",
    "in",
)
_NAMES = [*(f"${name}" for name in (*_TYPES, *_MORE)), "_data", "_typeBits", "base64", "subType", "t", "i", "pattern"]
_SIMPLE = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["zz", "1e999999999", "2026-99-99"])
)
_VALUES = st.recursive(
    _SIMPLE,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_NAMES) | st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
JSON = _VALUES.map(json.dumps)
DEEP = ["[" * 3000, "[" * 3000 + "]" * 3000, '{"a":' * 3000 + "1" + "}" * 3000, '{"_data": ' * 500 + '"8"' + "}" * 500]
TEXTS = JSON | st.text() | st.sampled_from(DEEP)


class NoOplog:
    """Source that fails on any use: input must be refused before a connection."""

    def present_time(self) -> tuple[int, int]:
        return 2**32 - 2, 1

    def present(self) -> str:
        return "8263"

    def oldest(self) -> int:
        return 1


def target(text: str) -> ResumePoint:
    nothing: Any = None
    oplog: Any = NoOplog()
    return offset_target(nothing, text, oplog)


# scenario: O08
@given(TEXTS.filter(lambda text: not text.isdecimal()))
@example('{"_data": {"$oid": "zz"}}')
@example('{"_data": "8", "x": {"$oid": "zz"}}')
@example('{"_data": "8", "x": {"$numberDecimal": "zz"}}')
@example('{"_data": "8", "x": {"$date": []}}')
@example('{"_data": "8", "x": {"$binary": {"base64": "=", "subType": "zz"}}}')
@example("9999-12-31T23:59:59")
@example("0001-01-01T00:00:00")
def test_a_target_of_an_offset_is_taken_or_refused(text: str) -> None:
    with suppress(ConfigurationError):
        options = target(text).watch_options
        assert len(options) == 1
        assert options.keys() <= {"start_after", "start_at_operation_time"}
        bson.encode(options)


@pytest.mark.parametrize("text", DEEP)
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"nested too deeply|not valid JSON"):
        parse_extended_json(text)
    assert query_problems(text) == ["is no JSON of a document"]
    assert parse_user_pipeline(text)[1]
    with pytest.raises(ConfigurationError):
        target(text)


@given(TEXTS)
def test_extended_json_is_read_or_refused_with_a_value_error(text: str) -> None:
    with suppress(ValueError):
        bson.encode({"value": parse_extended_json(text)})
    assert isinstance(parse_user_pipeline(text)[1], list)


@given(TEXTS, TEXTS)
def test_a_filter_is_used_or_has_a_problem(name: str, query: str) -> None:
    if not query_problems(query, from_outside=True):
        bson.encode(query_document(query))
    with suppress(ConfigurationError):
        conditions = conditions_of([f"{name}={query}"])
        order = parse_signal(
            Signal(
                "1", "execute-snapshot", json.dumps({"data-collections": ["a"], "additional-conditions": conditions})
            )
        )
        if isinstance(order, ExecuteSnapshot):
            query_document(order.query_of("a"))


@given(
    st.sampled_from(["execute-snapshot", "stop-snapshot", "pause-snapshot", "resume-snapshot", "log"]) | st.text(),
    TEXTS,
)
def test_a_signal_is_an_order_or_a_refusal(kind: str, data: str) -> None:
    parse_signal(Signal(None, kind, data))
    parse_signal(
        signal_of_line(
            json.dumps({"id": data, "type": kind, "data": data}).encode("utf-8", "surrogatepass"), Path("signals")
        )
    )
    parse_signal(signal_of_line(data.encode("utf-8", "surrogatepass"), Path("signals")))


@given(_VALUES, _VALUES)
def test_a_signal_of_the_source_is_an_order_or_a_refusal(identifier: Any, data: Any) -> None:
    with suppress(Exception):  # no document that MongoDB could hold
        event = bson.encode(
            {"operationType": "insert", "fullDocument": {"_id": identifier, "type": "execute-snapshot", "data": data}}
        )
        parse_signal(signal_of(event))
        return
    assert not _is_storable({"_id": identifier, "data": data})


def _is_storable(document: Any) -> bool:
    with suppress(Exception):
        return bool(bson.encode(document))
    return False


_TIME = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    ["2026-01-31T12:00:00", "2026-01-31T12:00", "2026-01-31T13:00:00+01:00", "2026-01-31 12:00:00Z", "20260131T12"],
)
def test_a_time_without_a_zone_is_utc_whatever_the_machines_zone_is(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert parse_time(text) == _TIME
    assert seconds_of(text) == int(_TIME.timestamp())


@given(st.text() | st.datetimes().map(str) | st.times().map(str))
def test_a_time_is_read_or_is_none(text: str) -> None:
    seconds = seconds_of(text)
    assert seconds is None or seconds > 0


YAML = (
    _VALUES.map(json_util.dumps)
    | st.text()
    | st.lists(
        st.sampled_from(
            [
                "&a ",
                "*a",
                "[",
                "]",
                "{",
                "}",
                ": ",
                ", ",
                "- ",
                "\n",
                "!!int ",
                "!!bool ",
                "!!timestamp ",
                "!!binary ",
                "? ",
                "x",
                "1",
                "~",
            ]
        )
    ).map("".join)
)
EVIL = [
    "a: !!int x",
    "a: !!bool x",
    "a: !!timestamp x",
    "a: !!float x",
    "a: &a [*a]",
    "&a {a: *a}",
    "? [1]\n: 2",
    "[" * 3000,
    "a: " + "[" * 500 + "]" * 500,
]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    text=YAML
    | YAML.map(lambda text: f"capture: {text}")
    | st.sampled_from(EVIL + [f"capture: {{max_batch_size: {text}}}" for text in EVIL])
)
def test_a_configuration_is_read_or_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "here.yml").write_bytes(text.encode("utf-8", "surrogatepass"))
    with suppress(ConfigurationError):
        load_settings("here", tmp_path)


@given(YAML | st.sampled_from(EVIL) | YAML.map(lambda text: f"table: silver.a\nexpectations: [{{type: {text}}}]"))
def test_suites_are_read_or_refused(text: str) -> None:
    with suppress(ConfigurationError):
        for suite in parse_suites({"a.yml": text}, {}):
            assert suite.fingerprint


@given(YAML | st.sampled_from(EVIL) | YAML.map(lambda text: f"- given: {{silver.a: {text}}}\n  expect: []"))
@example('- given: {silver.a: {"\\n": 1}, "silver.\\n": 1, "\\n": 1}\n  expect: []\n  "\\n": 1')
def test_cases_of_gold_are_read_or_have_problems(text: str) -> None:
    problems: list[str] = []
    parse_cases("a.yml", text, problems)
    assert all("\n" not in problem for problem in problems)
