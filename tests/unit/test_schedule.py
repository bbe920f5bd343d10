"""Schedules of collections without a change stream: keys of documents, and times of reads."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import bson
import pytest

from strandline.jobs.operations.scheduled_status import ScheduledStatus
from strandline.jobs.snapshot.plan import Chunk, Plan
from strandline.model.bson.merge_key import document_merge_key
from strandline.model.schedule import LastRead, Schedule, UnusableKey, key_of, skipped_text
from strandline.source.client import Collection
from strandline.source.ranges import Range

NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)


def key(document: dict[str, Any], *fields: str) -> str:
    return key_of(bson.encode(document), fields)


@pytest.mark.parametrize("value", [7, 7.0, "a", None, {"day": 1, "shop": [1, 2]}, bson.ObjectId(), b"x", NOON])
def test_one_field_gives_the_key_of_an_id_with_its_value(value: object) -> None:
    identifier = document_merge_key(bson.encode({"_id": value}))
    assert key({"n": 1, "_id": value}, "_id") == key({"_id": value}, "_id") == identifier
    assert key({"_id": 0, "other": value}, "other") == identifier
    assert key({"_id": 0, "in": {"other": value}}, "in.other") == identifier


def test_several_fields_give_the_key_of_a_document_of_them() -> None:
    expected = document_merge_key(bson.encode({"_id": {"shop.name": "a", "day": 1}}))
    assert key({"day": 1.0, "x": 2, "shop": {"name": "a"}}, "shop.name", "day") == expected
    assert key({"shop": {"name": "a"}, "day": 1}, "day", "shop.name") != expected


@pytest.mark.parametrize(
    ("document", "path", "reason"),
    [
        ({"a": 1}, "_id", "a document has no field _id"),
        ({"_id": [1]}, "_id", "the field _id is an array in a document"),
        ({"_id": 1}, "a.b", "a document has no field a.b"),
        ({"a": 1}, "a.b", "a document has no field a.b"),
        ({"a": {"b": [1]}}, "a.b", "the field a.b is an array in a document"),
        ({"a": [{"b": 1}]}, "a.b", "the field a.b is an array in a document"),
    ],
)
def test_a_missing_field_or_an_array_is_no_key(document: dict[str, Any], path: str, reason: str) -> None:
    with pytest.raises(UnusableKey) as refused:
        key(document, path)
    assert str(refused.value) == reason


@pytest.mark.parametrize(
    ("every", "seconds", "skipped", "minutes_until_next"),
    [("1h", 0, 0, 60), ("1h", 3_599, 0, 60), ("1h", 3_600, 1, 120), ("15m", 3_000, 3, 60), ("1d", 60, 0, 1_440)],
)
def test_a_read_that_takes_longer_than_its_interval_skips_the_reads_that_were_due_meanwhile(
    every: str, seconds: float, skipped: int, minutes_until_next: int
) -> None:
    schedule, last = Schedule(every, ("_id",)), LastRead(NOON, seconds)
    assert schedule.skipped(last) == skipped
    assert schedule.due_after(last) == NOON + timedelta(minutes=minutes_until_next)


def test_skipped_reads_are_told_with_their_number() -> None:
    schedule = Schedule("30s", ("_id",))
    begin = "the last read took 1 min 35 s, longer than its interval of 30s, and "
    assert skipped_text(schedule, LastRead(NOON, 95.5)) == begin + "3 reads were skipped"
    assert skipped_text(schedule, LastRead(NOON, 31)).endswith("of 30s, and 1 read was skipped")


def test_status_shows_a_read_a_refusal_and_a_collection_that_was_never_read() -> None:
    due = NOON + timedelta(hours=1)
    assert str(ScheduledStatus("shop.v", "1h")) == "shop.v every 1h: not read yet"
    read = ScheduledStatus("shop.v", "1h", NOON, 4.2, 31, 2, due)
    assert str(read) == (
        "shop.v every 1h: 31 documents in 4 s, 2 rows written at 2026-11-28 12:00:00, next at 2026-11-28 13:00:00 UTC"
    )
    refused = ScheduledStatus("shop.v", "1h", NOON, due_at=due, problem="shop.v does not exist")
    assert str(refused) == "shop.v every 1h (shop.v does not exist), next at 2026-11-28 13:00:00 UTC"


def test_the_key_of_a_chunk_is_stored_with_the_plan() -> None:
    view, orders = Collection("shop", "v", None), Collection("shop", "orders", None)
    chunks = (Chunk(0, view, Range(), key=("a", "b.c")), Chunk(1, orders, Range(), sweeps=True))
    plan = Plan(chunks, 2, kind="scheduled")
    assert Plan.from_json(plan.to_json()) == plan
    assert plan.scheduled == ["shop.v"]
