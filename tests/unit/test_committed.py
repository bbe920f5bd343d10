"""What the ends of the batches tell: where bronze is whole up to."""

from __future__ import annotations

import pytest

from pipelines.bronze.offsets import Committed, whole_through


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
        ([(1, 1), (2, 2), (3, 1)], (2, 2)),  # the writer of lineage 1 was fenced behind the hole that lineage 2 filled
        ([(1, 1), (2, 2), (3, 2), (9, 1)], (3, 2)),
    ],
)
def test_what_a_fenced_lineage_left_behind_a_hole_is_passed_over(ends: list[tuple[int, int]], last: tuple[int, int] | None) -> None:
    found = whole_through(Committed(batch, "{}", None, lineage) for batch, lineage in sorted(ends))
    assert (None if found is None else (found.batch, found.lineage)) == last
