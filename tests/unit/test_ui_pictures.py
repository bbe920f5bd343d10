"""Coordinates of the pictures."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from strandline.io.delta_log.log_activity import Appended, appended_by
from strandline.web.pictures import bars, graph_picture, headroom, timeline

_NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_the_largest_bar_has_the_full_height() -> None:
    small, large = bars([1, 4], 600, 80)
    assert (small.height, large.height, large.y) == (20, 80, 0)
    assert bars([0, 0], 600, 80)[0].height == 0
    assert bars([], 600, 80) == []


def test_the_position_moves_left_as_the_oplog_forgets() -> None:
    assert headroom(None, 5, 60) is None
    assert headroom(5, None, 60) is None
    near = headroom(90, 10, 60)
    assert near is not None
    assert (near.position, near.warning, near.is_short) == (10, 60, True)
    assert headroom(0, 0, 60) is not None


def test_marks_of_one_kind_at_one_place_are_one() -> None:
    ends = [
        {"at": _NOW + timedelta(seconds=second), "kind": kind, "batch": second}
        for second, kind in ((100, "events"), (50, "gap"), (0, "events"), (0, "events"))
    ]
    marks = timeline(ends, 900)
    assert [(mark.x, mark.kind) for mark in marks] == [(892, "events"), (450, "gap"), (8, "events")]
    assert timeline([], 900) == []


def test_a_node_lies_to_the_right_of_what_it_reads() -> None:
    nodes = [
        {"name": "a", "action": "full", "inputs": ["silver.x"]},
        {"name": "b", "action": "view", "inputs": ["gold.a", "silver.y"]},
    ]
    picture = graph_picture(nodes)
    assert picture is not None
    places = {box.name: box for box in picture.boxes}
    assert places["silver.x"].x == places["silver.y"].x < places["gold.a"].x < places["gold.b"].x
    assert places["silver.x"].y != places["silver.y"].y
    assert len(picture.lines) == 3
    assert graph_picture([{"name": f"n{number}", "action": "view", "inputs": []} for number in range(200)]) is None


def test_rows_that_are_only_written_anew_are_not_new() -> None:
    info = {"commitInfo": {"timestamp": 5_000}}
    added = {"add": {"dataChange": True, "stats": '{"numRecords": 3}'}}
    moved = {"add": {"dataChange": False, "stats": '{"numRecords": 9}'}}
    assert appended_by(7, [info, added, moved, {"add": {"dataChange": True}}]) == Appended(7, 5.0, 3)
    assert appended_by(7, [added]) is None
