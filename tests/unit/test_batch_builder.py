"""A batch closes at its limits, but not inside a transaction."""

from __future__ import annotations

import bson

from strandline.source.batch_builder import BatchBuilder, transaction_of


def event(transaction: int | None = None, text: str = "") -> bytes:
    fields = {} if transaction is None else {"lsid": {"id": b"session"}, "txnNumber": bson.Int64(transaction)}
    return bson.encode({"operationType": "insert", **fields, "fullDocument": {"text": text}})


def filled(*events: bytes, max_events: int = 2, max_bytes: int = 10**6) -> BatchBuilder:
    builder = BatchBuilder((), max_events=max_events, max_bytes=max_bytes)
    for each in events:
        if builder.can_close(due=False) or not builder.add(each):
            break
    return builder


def test_a_batch_outside_of_transactions_ends_at_its_limit() -> None:
    builder = filled(event(), event(), event())
    assert (len(builder.events), builder.next_events, builder.ends_outside_transaction(caught_up=False)) == (
        2,
        (),
        True,
    )
    assert BatchBuilder((), max_events=2, max_bytes=9).can_close(due=True)


# scenario: I01
def test_a_full_batch_goes_on_to_the_end_of_its_last_transaction() -> None:
    following = event(2)
    builder = filled(event(), event(1), event(1), event(1), following)
    assert (len(builder.events), builder.next_events, builder.ends_outside_transaction(caught_up=False)) == (
        4,
        (following,),
        True,
    )
    then = BatchBuilder(builder.next_events, max_events=2, max_bytes=10**6)
    assert (then.events, then.can_close(due=False)) == ([following], False)
    assert transaction_of(event(1)) != transaction_of(following)
    assert transaction_of(event()) is None


def test_a_batch_ends_outside_transaction_once_the_source_has_no_more_events() -> None:
    builder = filled(event(1), event(1))
    assert not builder.can_close(due=False)
    assert builder.awaits_transaction_end
    assert (builder.ends_outside_transaction(caught_up=False), builder.ends_outside_transaction(caught_up=True)) == (
        False,
        True,
    )


def test_memory_stays_bounded_in_a_transaction_without_end() -> None:
    builder = filled(*(event(1, text="x" * 100) for _ in range(50)), max_bytes=1000)
    assert 4000 <= sum(map(len, builder.events)) < 4500
    assert not builder.ends_outside_transaction(caught_up=False)


def test_a_batch_that_awaits_a_better_token_closes_at_four_times_its_bytes_only() -> None:
    builder = BatchBuilder((), max_events=1, max_bytes=100)
    builder.awaits_better_token = True
    builder.add(event())
    assert not builder.can_close(due=True)
    builder.add(event(text="x" * 400))
    assert builder.can_close(due=True)
