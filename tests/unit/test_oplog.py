"""Oplog window, and the headroom of a position in it."""

from __future__ import annotations

import pytest

from strandline.jobs.offsets.move_offset import OffsetMove
from strandline.source.oplog import OplogWindow, _first, _first_from_above


@pytest.mark.parametrize("answer", [1, 2, 57, 99, 100])
def test_bisection_finds_the_smallest_number_that_holds(answer: int) -> None:
    asked: list[int] = []

    def holds(number: int) -> bool:
        asked.append(number)
        return number >= answer

    assert _first(1, 100, holds) == answer
    assert len(asked) <= 7


@pytest.mark.parametrize("low", [1, 50, 999_990, 1_000_000])
@pytest.mark.parametrize("answer", [1, 2, 57, 999_000, 999_990, 999_999, 1_000_000])
def test_a_search_from_above_finds_the_same_and_asks_little_near_the_end(answer: int, low: int) -> None:
    asked: list[int] = []

    def holds(number: int) -> bool:
        asked.append(number)
        return number >= answer

    assert _first_from_above(low, 1_000_000, holds) == _first(low, 1_000_000, lambda number: number >= answer)
    assert all(low <= number < 1_000_000 for number in asked)
    assert len(asked) <= (8 if answer >= 999_990 else 42)


@pytest.mark.parametrize(
    ("window", "headroom", "age"),
    [
        (OplogWindow(oldest=None, present=1000, position=900), None, 100),
        (OplogWindow(oldest=400, present=1000, position=900), 500, 100),
        (OplogWindow(oldest=400, present=1000, position=None), 0, None),
    ],
)
def test_headroom_is_the_time_between_oldest_entry_and_position(
    window: OplogWindow, headroom: int | None, age: int | None
) -> None:
    assert (window.headroom_seconds, window.age_seconds) == (headroom, age)


@pytest.mark.parametrize(
    ("events", "count_text"), [(1_234, "1,234"), (1_000_000, "at least 1,000,000"), (None, "an unknown number of")]
)
def test_a_move_says_how_many_events_it_skips(events: int | None, count_text: str) -> None:
    move = OffsetMove("shop", "alter", "forward", "here", "there", events)
    assert move.summary() == f"shop moves forward: {count_text} events are skipped, and a gap is recorded"
