"""Search of the newest commits for an append: did it land, and did it land in the table of before."""

from __future__ import annotations

import pytest

from strandline.io.delta_log.append_result import AlreadyAppended, Anchor, Appended, find_commit
from strandline.io.delta_log.commits import Commit

_LOG = [
    Commit(9, "WRITE", {"numOutputRows": "3"}, "mine:2"),
    Commit(8, "OPTIMIZE"),
    Commit(7, "WRITE", {"numOutputRows": "1"}, "mine:1"),
]


@pytest.mark.parametrize(
    ("anchor", "stands"),
    [
        (None, None),
        (Anchor(7, "mine:1"), True),
        (Anchor(8, "mine:1"), False),
        (Anchor(7, "mine:0"), False),
        (Anchor(6, "mine:0"), None),
    ],
    ids=["none", "in its place", "another commit has its place", "another writer's", "the log has forgotten it"],
)
def test_a_writer_knows_its_table_by_its_own_commit_before(anchor: Anchor | None, stands: bool | None) -> None:
    found = find_commit("mine:2", _LOG, after=8, anchor=anchor)
    assert isinstance(found, Appended)
    assert (found.rows, found.version, found.looked_up_to, found.anchored) == (3, 9, 9, stands)


def test_a_proof_that_stands_before_the_look_does_not_count() -> None:
    assert find_commit("mine:1", _LOG, after=7, anchor=Anchor(7, "mine:1")) == AlreadyAppended()
