"""Positions sort as the stream does, and a READ sorts between what it contains and what came later."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipelines.model.position import snapshot_position, streamed_position

_times = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**31))
_tokens = st.text("0123456789ABCDEF", min_size=1, max_size=40)


@given(_times, _times, _tokens, _tokens)
def test_cluster_time_orders_first_and_the_token_second(one: tuple[int, int], other: tuple[int, int], token: str, second: str) -> None:
    assert (streamed_position(*one, token) < streamed_position(*other, second)) == ((one, token) < (other, second))


# scenario: C06, C08
@given(_times, _times, _tokens)
def test_a_read_wins_over_every_event_up_to_it_and_loses_to_every_later_one(
    event: tuple[int, int], read: tuple[int, int], token: str
) -> None:
    assert (streamed_position(*event, token) < snapshot_position(*read)) == (event <= read)
