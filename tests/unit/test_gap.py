"""Gaps as one line for people."""

from __future__ import annotations

import pytest

from strandline.model.gap import Gap


@pytest.mark.parametrize(
    ("gap", "line"),
    [
        (
            Gap("6553f10000000001:82AB", "6553f10a00000001:~"),
            "changes of any collection are missing from 2023-11-14T22:13:20+00:00 to 2023-11-14T22:13:30+00:00",
        ),
        (
            Gap("", "6553f10a00000001:~", "shop.orders"),
            "changes of shop.orders are missing from the beginning to 2023-11-14T22:13:30+00:00",
        ),
        (
            Gap.open_from("6553f10000000001:82AB"),
            "changes of any collection may be hidden from 2023-11-14T22:13:20+00:00 on",
        ),
    ],
)
def test_a_gap_is_one_line(gap: Gap, line: str) -> None:
    assert gap.summary() == line
