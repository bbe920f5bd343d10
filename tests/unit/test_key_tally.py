"""Tallies of a batch's keys: the partitioning of the batch does not matter."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.silver.key_filter import Keys, KeyTally, tally

_ROWS = st.lists(st.tuples(st.sampled_from("cudr"), st.none() | st.text(max_size=3) | st.just("x" * 201)), max_size=12)


def keys(rows: Sequence[tuple[str, str | None]], cuts: Sequence[int] = ()) -> Keys:
    whole = KeyTally()
    bounds = [0, *sorted(cuts), len(rows)]
    for start, end in pairwise(bounds):
        whole.merge(tally([op for op, _ in rows[start:end]], [key for _, key in rows[start:end]]))
    return whole.keys()


@given(rows=_ROWS, cuts=st.lists(st.integers(0, 12), max_size=3))
def test_parts_make_the_whole(rows: list[tuple[str, str | None]], cuts: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("strandline.silver.key_filter.MAX_LISTED_KEYS", 5)
        found = keys(rows, [min(cut, len(rows)) for cut in cuts])
        assert found == keys(rows)
        known = [key for _, key in rows if key is not None]
        if len(known) < len(rows):
            assert found == Keys()
        elif len(rows) <= 5 and all(len(key) <= 200 for key in known):
            assert found == Keys(tuple(sorted(set(known))))
        else:
            streamed = len(rows) > 5 and all(op != "r" for op, _ in rows)
            assert found == Keys(bounds=(min(known), max(known)), is_stream_only=streamed)


def test_a_thousand_changes_are_listed_and_one_more_is_not() -> None:
    rows = [("u", f"{number:04}") for number in range(1_000)]
    assert len(keys(rows, [400]).listed) == 1_000
    assert keys([*rows, ("u", "0000")], [400]) == Keys(bounds=("0000", "0999"), is_stream_only=True)


def test_a_key_that_is_long_is_a_bound_and_not_listed() -> None:
    assert keys([("c", "x" * 200)]).listed
    assert keys([("c", "x" * 201)]) == Keys(bounds=("x" * 201, "x" * 201))
