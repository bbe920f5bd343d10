"""Newest positions of a range of bronze, and transactions at its end."""

from __future__ import annotations

import pytest
from pyspark.sql import Row

from strandline.silver.bronze_increment import Reach, reach_of


def group(position: str | None = None, txn: int | None = None, read: str | None = None, **end: object) -> Row:
    newest = None if position is None else Row(position=position, txn_number=txn)
    known = {
        "epoch": 1,
        "batch": 1,
        "ends_outside_transaction": None,
        "snapshot_id": None,
        "resume_token": '{"_data": "82B"}',
    }
    ended = Row(**{**known, **end}) if end else None
    return Row(newest=newest, read=read, end=ended)


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([group("1:82B", batch=1)], True),
        ([group("1:82B", txn=7, batch=1, ends_outside_transaction=True)], True),
        ([group("1:82B", txn=7, batch=1, ends_outside_transaction=False)], False),
        ([group("1:82B", txn=7, batch=1)], False),
        (
            [group("1:82B", txn=7), group(batch=2, resume_token='{"_data": "82C"}')],
            True,
        ),  # a heartbeat: the stream went on
        # captured again, and not so far yet
        (
            [group("1:82B", txn=7), group(batch=2, resume_token='{"_data": "82A"}', ends_outside_transaction=True)],
            False,
        ),
        ([group("1:82B", txn=7)], False),
    ],
)
def test_a_transaction_is_over_where_something_lies_behind_it(groups: list[Row], expected: bool) -> None:
    assert reach_of(groups).ends_outside_transaction is expected


def test_the_reach_of_rows_has_the_newest_of_each_position() -> None:
    found = reach_of(
        [group("2:82A", read="1:~", batch=2, snapshot_id="s"), group("3:82B", read="4:~", batch=3), group()]
    )
    assert found == Reach("3:82B", "4:~", True, False)
    assert found.merged_with("5:82A", None) == Reach("5:82A", "4:~", True, False)
    assert reach_of([]) == Reach()
