"""How far the source remembers, and what that means for a position."""

from __future__ import annotations

import pytest

from pipelines.jobs.offsets.job import Move
from pipelines.source.oplog import OplogReach, _first


@pytest.mark.parametrize("answer", [1, 2, 57, 99, 100])
def test_bisection_finds_the_first_that_holds(answer: int) -> None:
    asked: list[int] = []

    def holds(number: int) -> bool:
        asked.append(number)
        return number >= answer

    assert _first(1, 100, holds) == answer
    assert len(asked) <= 7


@pytest.mark.parametrize(
    ("reach", "headroom", "age"),
    [
        (OplogReach(oldest=None, present=1000, position=900), None, 100),
        (OplogReach(oldest=400, present=1000, position=900), 500, 100),
        (OplogReach(oldest=400, present=1000, position=None), 0, None),
    ],
)
def test_headroom_is_the_time_until_the_position_falls_off(
    reach: OplogReach, headroom: int | None, age: int | None
) -> None:
    assert (reach.headroom_seconds, reach.age_seconds) == (headroom, age)


@pytest.mark.parametrize(
    ("events", "said"), [(1_234, "1,234"), (1_000_000, "at least 1,000,000"), (None, "an unknown number of")]
)
def test_a_move_says_how_many_events_it_skips_as_far_as_it_is_known(events: int | None, said: str) -> None:
    move = Move("shop", "alter", "forward", "here", "there", events)
    assert move.summary() == f"shop moves forward: {said} events are skipped, and a gap is recorded"
