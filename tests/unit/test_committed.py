"""What the ends of the batches tell: where bronze is whole up to, and how often in a row the history was lost."""

from __future__ import annotations

import pytest
from pyspark.sql import Row

from strandline.bronze.gaps import losses_in_a_row
from strandline.bronze.offsets import Committed, whole_through


# scenario: O11, G11
@pytest.mark.parametrize(
    ("ends", "last"),
    [
        ([], None),
        ([(1, 1), (2, 1), (3, 1)], (3, 1)),
        ([(1, 1), (2, 1), (5, 1)], (2, 1)),
        ([(2, 1), (3, 1)], None),  # of a writer that did not notice a RESTORE to before its first batch
        ([(1, 1), (3, 1), (2, 2), (3, 2)], (3, 2)),
        ([(1, 1), (2, 2), (3, 1), (3, 2)], (3, 2)),
        ([(1, 1), (2, 2), (3, 1)], (2, 2)),  # the writer of epoch 1 was fenced behind the hole that epoch 2 filled
        ([(1, 1), (2, 2), (3, 2), (9, 1)], (3, 2)),
    ],
)
def test_batches_of_a_fenced_writer_after_a_hole_are_skipped(
    ends: list[tuple[int, int]], last: tuple[int, int] | None
) -> None:
    found = whole_through(Committed(batch, "{}", None, epoch) for batch, epoch in sorted(ends))
    assert (None if found is None else (found.batch, found.epoch)) == last


def end(word: str, token: str, snapshot: str | None = None) -> Row:
    op, _, kind = word.partition(" ")
    return Row(op=op, operation_type=kind or op, resume_token=token, snapshot_id=snapshot)


FIRST = end("c", "1")
HEAL, AGAIN = end("gap heal", "2", "s1"), end("gap heal", "3", "s2")


# scenario: G12
@pytest.mark.parametrize(
    ("oldest_first", "losses"),
    [
        ([FIRST], 0),
        ([FIRST, HEAL, AGAIN], 2),
        ([FIRST, end("gap restart_at_oldest", "2"), end("gap restart_at_oldest", "3")], 2),
        ([FIRST, HEAL, end("heartbeat", "2", "s1"), AGAIN], 2),  # a signal was acted upon: that is no progress
        ([FIRST, HEAL, end("heartbeat", "2b", "s1"), AGAIN], 1),  # weeks without an event, and the token moves on
        ([FIRST, HEAL, end("heartbeat", "2"), AGAIN], 1),  # the snapshot has healed the gap
        ([FIRST, HEAL, end("u", "2b", "s1"), AGAIN, end("heartbeat", "3b", "s2")], 0),
        ([FIRST, HEAL, AGAIN, end("gap altered", "4")], 0),
        ([FIRST, HEAL, AGAIN, end("offset reset", "4")], 0),
    ],
)
def test_losses_are_in_a_row_while_the_position_does_not_move_on(oldest_first: list[Row], losses: int) -> None:
    assert losses_in_a_row(oldest_first[::-1]) == losses
