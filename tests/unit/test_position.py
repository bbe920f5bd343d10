"""Positions sort in stream order. A READ sorts after the events that it contains, and before later ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strandline.model.position import cluster_seconds, position_before, snapshot_position, streamed_position

_times = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**31))
_tokens = st.text("0123456789ABCDEF", min_size=1, max_size=40)


@given(_times, _times, _tokens, _tokens)
def test_cluster_time_orders_first_and_the_token_second(
    one: tuple[int, int], other: tuple[int, int], token: str, second: str
) -> None:
    assert (streamed_position(*one, token) < streamed_position(*other, second)) == ((one, token) < (other, second))


# scenario: C06, C08
@given(_times, _times, _tokens)
def test_a_read_wins_over_every_event_up_to_it_and_loses_to_every_later_one(
    event: tuple[int, int], read: tuple[int, int], token: str
) -> None:
    assert (streamed_position(*event, token) < snapshot_position(*read)) == (event <= read)


@given(_times, _times, _tokens, st.integers(0, 2**32))
def test_earlier_parts_what_is_older_than_a_span_from_what_is_not(
    event: tuple[int, int], other: tuple[int, int], token: str, span: int
) -> None:
    bound = position_before(streamed_position(*event, token), span)
    is_older = (max(0, event[0] - span), event[1]) > other
    assert (streamed_position(*other, token) < bound) == (snapshot_position(*other) < bound) == is_older
    assert cluster_seconds(bound) == max(0, event[0] - span)
