"""Pure parts of the source: stages, resume precedence, error classes, ranges."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import bson
import pytest
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st
from pymongo import errors as mongo

from strandline.errors import ConfigurationError, ResumePointLost, RetriableError
from strandline.source.client import ConnectionOptions, open_client
from strandline.source.errors import CredentialsRefused, Phase, as_strandline_error, classify
from strandline.source.ranges import Range, covers_all_ids, ranges_between
from strandline.source.resume import ResumePoint, resume_point
from strandline.source.stages import Selection, stream_stages
from strandline.source.uri import check_mechanism, hosts_of

ROOT = Path(__file__).parents[2]

EXPLICIT, CONFIGURED = ResumePoint(token='{"_data": "explicit"}'), (1, 0)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ResumePoint()),
        ({"configured": CONFIGURED}, ResumePoint(cluster_time=(1, 0))),
        ({"configured": CONFIGURED, "committed_cluster_time": (2, 0)}, ResumePoint(cluster_time=(2, 0))),
        ({"committed_cluster_time": (2, 0), "committed_token": "t"}, ResumePoint(token="t")),
        ({"committed_token": "t", "explicit": EXPLICIT}, EXPLICIT),
        (
            {"committed_token": "t", "committed_cluster_time": (2, 0), "configured": CONFIGURED, "explicit": EXPLICIT},
            EXPLICIT,
        ),
    ],
)
def test_the_start_with_the_highest_precedence_wins(given: dict[str, Any], expected: ResumePoint) -> None:
    assert resume_point(**given) == expected


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("mongodb://127.0.0.1:1/", (11, 12, None, "strandline")),
        ("mongodb://127.0.0.1:1/?connectTimeoutMS=1234", (1.234, 12, None, "strandline")),
        ("mongodb://127.0.0.1:1/?w=1;serverselectiontimeoutms=60000;appname=mine", (11, 60, None, "mine")),
        (
            "mongodb://127.0.0.1:1?serverSelectionTimeoutMS=60000&socketTimeoutMS=30000&connectTimeoutMS=1234&appName=mine",
            (1.234, 60, 30, "mine"),
        ),
    ],
)
def test_options_of_the_uri_win_over_settings(uri: str, expected: tuple[float | str | None, ...]) -> None:
    with open_client(ConnectionOptions(uri, 11_000, 12_000)) as client:
        found = client.options
        pool = found.pool_options
        assert (pool.connect_timeout, found.server_selection_timeout, pool.socket_timeout, pool.appname) == expected


# scenario: H01
def test_a_token_is_always_resumed_by_start_after_with_its_type_bits() -> None:
    token = '{"_data": "82AB", "_typeBits": {"$binary": {"base64": "gg==", "subType": "00"}}}'
    options = ResumePoint(token=token).watch_options
    assert options == {"start_after": {"_data": "82AB", "_typeBits": b"\x82"}}
    assert ResumePoint(cluster_time=(5, 1)).watch_options == {"start_at_operation_time": Timestamp(5, 1)}
    assert ResumePoint().watch_options == {}


def test_without_filters_there_is_no_stage() -> None:
    assert stream_stages(Selection()) == []


# scenario: H06, H07
def test_filters_never_hide_control_events() -> None:
    control = {
        "operationType": {"$in": ["create", "drop", "rename", "dropDatabase", "invalidate", "reshardCollection"]}
    }
    admitted = {"ns.db": {"$regex": "^(?:(?:shop)|(?:crm))\\z"}}
    assert stream_stages(Selection(databases=("shop", "crm"))) == [{"$match": {"$or": [control, {"$and": [admitted]}]}}]


# scenario: M08, U08
@pytest.mark.parametrize(
    ("pattern", "name", "admitted"),
    [
        ("db.col1", ("db", "col1"), True),
        ("db.col1", ("db", "col1X"), False),
        ("DB.col1", ("db", "col1"), False),
        (r"db\.a\.b", ("db", "a.b"), True),
    ],
)
def test_patterns_are_anchored_and_case_sensitive(pattern: str, name: tuple[str, str], admitted: bool) -> None:
    assert Selection(collections=(pattern,)).admits(*name) is admitted


@pytest.mark.parametrize("name", [("admin", "x"), ("local", "x"), ("config", "x"), ("db", "system.views")])
def test_system_namespaces_are_never_captured(name: tuple[str, str]) -> None:
    assert not Selection().admits(*name)


def test_a_selection_error_lists_all_problems() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Selection.of("collection", "nodot", databases=("(",), collections=("[",))
    assert str(caught.value).count("is no regular expression") == 2
    assert "<database>.<collection>" in str(caught.value)


def failure(code: int, label: str = "") -> mongo.OperationFailure:
    return mongo.OperationFailure("secret text", code, {"errorLabels": [label]} if label else {})


# scenario: F01, F03, G05, G07, G09, J02
@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        *[
            (failure(code), "retriable")
            for code in (
                6,
                7,
                89,
                91,
                189,
                262,
                9001,
                10107,
                11600,
                11601,
                11602,
                13435,
                13436,
                63,
                150,
                13388,
                234,
                133,
            )
        ],
        (failure(43), "retriable"),
        (failure(136), "retriable"),
        (failure(286), "history_lost"),
        *[(failure(code), "event_missing") for code in (280, 7182504)],
        *[(failure(code), "invalid_token") for code in (260, 50811, 40649, 9, 15, 207, 50796, 51055, 50872, 50816)],
        (failure(10334), "oversize"),
        (failure(18), "configuration"),
        (failure(13), "configuration"),
        (failure(40573), "configuration"),
        (failure(31337), "terminal"),
        (failure(31337, "ResumableChangeStreamError"), "retriable"),
        (mongo.AutoReconnect("x"), "retriable"),
        (mongo.ServerSelectionTimeoutError("x"), "retriable"),
        (mongo.ConfigurationError("x"), "configuration"),
        (mongo.DuplicateKeyError("x", 11000), "terminal"),
    ],
)
def test_errors_are_classified_by_code(error: mongo.PyMongoError, verdict: str) -> None:
    assert classify(error, "resuming") == verdict


_R2 = (249, 355, 365, 407, 433, 442, 449, 450, 453, 465, 471, 91331, 10045600)
_PHASES: tuple[Phase, ...] = ("opening", "resuming", "reading", "scanning")


@pytest.mark.parametrize("label", ["SystemOverloadedError", "RetryableError"])
@pytest.mark.parametrize("code", [462, 999_999, 13, 50], ids="R1 {}".format)
def test_an_overload_label_makes_every_error_code_retriable(code: int, label: str) -> None:
    error = failure(code, label)
    assert [classify(error, phase) for phase in _PHASES] == ["retriable"] * len(_PHASES)
    told = as_strandline_error(error, doing="reading the change stream")
    assert isinstance(told, RetriableError)
    assert told.message == f"MongoDB refused reading the change stream (code {code}): it has too much to do"


@pytest.mark.parametrize("code", _R2, ids="R2 {}".format)
def test_codes_of_a_cluster_that_changes_pass(code: int) -> None:
    assert [classify(failure(code), phase) for phase in _PHASES] == ["retriable"] * len(_PHASES)


def test_the_events_of_a_removed_shard_are_lost_history() -> None:
    """R2: 464."""
    assert isinstance(as_strandline_error(failure(464), doing="the change stream", phase="reading"), ResumePointLost)


def test_a_time_limit_of_the_server_ends_a_scan_and_no_stream() -> None:
    """R2: 50 at find."""
    error = as_strandline_error(failure(50), doing="reading shop.a", phase="scanning")
    assert isinstance(error, ConfigurationError)
    assert "defaultMaxTimeMS" in error.next_step
    assert isinstance(as_strandline_error(failure(50), doing="the stream", phase="reading"), RetriableError)


@pytest.mark.parametrize(
    ("text", "refused"),
    [("bad auth : authentication failed", True), ("CMD_NOT_ALLOWED: getLog", False), ("x is not allowed here", False)],
    ids="R2 8000 {}".format,
)
def test_atlas_refuses_credentials_and_commands_with_one_code(text: str, refused: bool) -> None:
    error = as_strandline_error(mongo.OperationFailure(text, 8000), doing="the change stream")
    assert isinstance(error, CredentialsRefused) is refused
    assert isinstance(error, ConfigurationError)
    assert text not in str(error)


@pytest.mark.parametrize("phase", ["opening", "reading"])
@pytest.mark.parametrize("code", [260, 50811, 40649, 9])
def test_no_token_is_blamed_if_none_was_given(code: int, phase: Any) -> None:
    assert classify(failure(code), phase) == "terminal"
    assert isinstance(as_strandline_error(failure(code), doing="the change stream", phase=phase), ConfigurationError)


@pytest.mark.parametrize(
    ("code", "kind"), [(286, ResumePointLost), (18, ConfigurationError), (13, ConfigurationError), (91, RetriableError)]
)
def test_an_error_is_one_line_without_the_servers_text(code: int, kind: type[Exception]) -> None:
    error = as_strandline_error(failure(code), doing="the change stream")
    assert isinstance(error, kind)
    assert "secret" not in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize("code", [2, 9])
def test_an_unknown_stage_names_the_setting_that_holds_it(code: int) -> None:
    assert "capture.cursor_pipeline" in as_strandline_error(failure(code), doing="opening a change stream").next_step


@pytest.mark.parametrize(
    ("uri", "hosts"),
    [
        ("mongodb://user:se%40cret@a:1,b:2/db?replicaSet=rs0", "a:1,b:2"),
        ("mongodb+srv://user:secret@cluster.example?tls=true", "cluster.example"),
        ("mongodb://[::1]:27017", "[::1]:27017"),
    ],
)
def test_hosts_are_named_without_credentials(uri: str, hosts: str) -> None:
    assert hosts_of(uri) == hosts


def bound(value: object) -> bytes:
    return bson.encode({"_id": value})


def test_ranges_cover_all_ids_and_equal_bounds_count_once() -> None:
    ranges = ranges_between([bound(1), bound(1.0), bound("a")])
    assert ranges == [Range(None, bound(1)), Range(bound(1), bound("a")), Range(bound("a"), None)]
    assert ranges_between([]) == [Range()]
    assert ranges_between([bound(bson.MinKey()), bound(bson.MaxKey())]) == [Range()]
    assert [Range.from_json(chunk.to_json()) for chunk in ranges] == ranges


@given(st.lists(st.integers(-1000, 1000), unique=True), st.randoms())
def test_ranges_cover_all_ids_only_together(values: list[int], random: Any) -> None:
    ranges = ranges_between([bound(value) for value in sorted(values)])
    random.shuffle(ranges)
    assert covers_all_ids(ranges)
    assert not covers_all_ids(ranges[1:])
    assert not covers_all_ids([*ranges, ranges[0]])


_AUTHENTICATION = (ROOT / "docs" / "authentication.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("install", "uri"), re.findall(r"^\| [^|]+ \| ([^|]+) \| `(mongodb:[^`]+)` \|", _AUTHENTICATION, re.MULTILINE)
)
def test_a_documented_way_to_log_in_needs_the_documented_extra_and_no_other(install: str, uri: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extra = re.search("`(.+)`", install)
    if extra is None:
        check_mechanism(uri)
        return
    assert project["optional-dependencies"][extra[1]]
    mechanism = parse_qs(uri.partition("?")[2])["authMechanism"][0]
    with pytest.raises(ConfigurationError, match=mechanism) as refused:  # `make setup` installs none of the packages
        check_mechanism(uri)
    assert f"[{extra[1]}]" in refused.value.next_step
