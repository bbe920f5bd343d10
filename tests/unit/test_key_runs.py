"""Ranges of ascending keys: repeated keys are always seen."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa
import pytest

from strandline.silver.key_runs import KeyRuns, are_distinct

Row = tuple[str | None, str]
"""Key and position."""


def ranges_of(*batches: Sequence[Row]) -> list[tuple[str, str]] | None:
    runs = KeyRuns()
    for batch in batches:
        keys, positions = ([row[at] for row in batch] for at in (0, 1))
        runs.add(pa.array(keys, pa.string()), pa.array(positions, pa.string()))
    return runs.ranges


def chunk(keys: str, position: str) -> list[Row]:
    return [(key, position) for key in keys]


def test_the_batches_of_a_chunk_are_one_range() -> None:
    assert ranges_of(chunk("ab", "1"), chunk("cd", "1"), []) == [("a", "d")]


def test_chunks_in_any_order_are_ranges_of_their_own() -> None:
    first, second = ranges_of(chunk("mno", "2") + chunk("ab", "1")), ranges_of(chunk("cd", "1"), chunk("pq", "2"))
    assert first == [("m", "o"), ("a", "b")]
    assert second == [("c", "d"), ("p", "q")]
    assert are_distinct([first, second, []])


@pytest.mark.parametrize(
    "rows", [[("b", "1"), ("a", "1")], [("a", "1"), ("a", "1")], [("a", "1"), (None, "1")], [(None, "1")]]
)
def test_keys_that_do_not_ascend_are_not_known_to_be_distinct(rows: list[Row]) -> None:
    assert ranges_of(rows) is None
    assert ranges_of(rows[:1], rows[1:], chunk("xy", "3")) is None or not are_distinct([ranges_of(rows[:1], rows[1:])])


def test_a_key_of_two_chunks_is_not_distinct() -> None:
    assert not are_distinct([ranges_of(chunk("abc", "1")), ranges_of(chunk("cde", "2"))])
    assert not are_distinct([ranges_of(chunk("az", "1") + chunk("k", "2"))])  # may be in the range, or not


def test_a_batch_of_many_events_is_not_known_to_be_distinct() -> None:
    assert ranges_of([(f"{number:04}", f"{number:04}") for number in range(2_000)]) is None


@pytest.mark.parametrize("seed", range(20))
def test_repeated_keys_are_never_taken_for_distinct(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(50):
        rows = [(chance.choice("abcdefgh"), chance.choice("12")) for _ in range(chance.randrange(1, 6))]
        if chance.random() < 0.7:
            rows.sort(key=lambda row: (row[1], row[0]))
        cut, middle = sorted(chance.choices(range(len(rows) + 1), k=2))
        parts = [ranges_of(rows[:cut], rows[cut:middle]), ranges_of(rows[middle:])]
        keys = [key for key, _ in rows]
        assert not are_distinct(parts) or len(set(keys)) == len(keys)
