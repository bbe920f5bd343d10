"""Snapshot certificates, sweeps and gaps."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import Row

from strandline.model.gap import GAPS_PROPERTY, Gap, gaps_json, gaps_of
from strandline.model.namespaces import Namespace
from strandline.silver.bronze_increment import BronzeIncrement
from strandline.silver.fold.patches import fold_pending
from strandline.silver.fold.step import Base
from strandline.silver.sweep import SnapshotCertificate, certificate_from_rows

A, B, C = Namespace("shop", "a"), Namespace("shop", "b"), Namespace("shop", "c")
PLAN: dict[str, Any] = {
    "complete": True,
    "at": [100, 1],
    "chunks": [{"db": "shop", "collection": name, "sweeps": True} for name in ("a", "a", "b")],
}
SOME_OF_A = [{**PLAN["chunks"][0], "sweeps": False}, *PLAN["chunks"][1:]]


def row(kind: str, chunk: int = -1, position: str | None = None, collection: str = "a", after: Any = None) -> Row:
    return Row(
        operation_type=kind,
        db="shop",
        collection=collection,
        chunk=chunk,
        position=position,
        after=json.dumps(after or {}),
    )


ROWS = [
    row("plan", after=PLAN),
    row("chunk", 0, "7:~"),
    row("chunk", 1, "5:~"),
    row("chunk", 2, "6:~", "b"),
    row("completed", 3),
]


def test_a_collections_threshold_is_the_smallest_l_of_its_chunks() -> None:
    snapshot = certificate_from_rows("s", ROWS)
    assert snapshot is not None
    assert [snapshot.sweep_position(namespace) for namespace in (A, B)] == ["5:~", "6:~"]
    assert [snapshot.absence_position(namespace) for namespace in (A, B, C)] == ["7:~", "6:~", "0000006400000001:~"]


def test_a_collection_that_was_gone_when_they_were_listed_is_swept_at_that_time() -> None:
    snapshot = certificate_from_rows("s", ROWS)
    assert snapshot is not None
    assert snapshot.sweep_position(C) == "0000006400000001:~"


def test_a_scheduled_collection_in_a_snapshot_is_not_swept_and_holds_back_no_healing() -> None:
    view = {"db": "shop", "collection": "c", "sweeps": False, "key": ["_id"]}
    plan = {**PLAN, "chunks": [*PLAN["chunks"], view], "skipped": ["shop.c"]}
    rows = [row("plan", after=plan), *ROWS[1:4], row("chunk", 3, "8:~", "c"), row("completed", 4)]
    snapshot = certificate_from_rows("s", rows)
    assert snapshot is not None
    assert (snapshot.sweep_position(A), snapshot.sweep_position(C)) == ("5:~", None)
    assert snapshot.heals_up_to == "0000006400000001:~"
    alone = [row("plan", after={**plan, "complete": False, "chunks": [view]}), rows[4], rows[5]]
    assert certificate_from_rows("s", alone) is None


def test_the_snapshot_that_began_to_read_first_sweeps_first() -> None:
    first, second = (
        SnapshotCertificate(name, {A: position}, None, frozenset({A}))
        for name, position in (("first", "3:~"), ("second", "5:~"))
    )
    increment = BronzeIncrement(
        0, completed=((4, second), (2, SnapshotCertificate("of b", {B: "1:~"}, None, frozenset({B}))), (6, first))
    )
    assert increment.sweeping(A, 0) == [first, second]
    assert increment.sweeping(A, 4) == [first]


@pytest.mark.parametrize("other", [row("discarded", 1), row("chunk", 1, "5:~", "renamed")])
def test_a_collection_of_which_a_chunk_was_discarded_or_read_under_another_name_is_not_swept(other: Row) -> None:
    snapshot = certificate_from_rows("s", [*ROWS[:2], other, *ROWS[3:]])
    assert snapshot is not None
    assert snapshot.sweep_position(A) is None
    assert snapshot.sweep_position(B) == "6:~"


def test_a_partial_snapshot_sweeps_no_other_collection_and_no_row_outside_its_query() -> None:
    snapshot = certificate_from_rows(
        "s", [row("plan", after={**PLAN, "complete": False, "chunks": SOME_OF_A}), *ROWS[1:]]
    )
    assert snapshot is not None
    assert [snapshot.sweep_position(namespace) for namespace in (A, B, C)] == [None, "6:~", None]


def test_a_complete_snapshot_sweeps_no_collection_that_it_skips() -> None:
    snapshot = certificate_from_rows("s", [row("plan", after={**PLAN, "skipped": ["shop.c"]}), *ROWS[1:]])
    assert snapshot is not None
    assert (snapshot.sweep_position(C), snapshot.heals_up_to) == (None, "0000006400000001:~")


NOT_ALL_OF_A = {**PLAN, "chunks": SOME_OF_A}


@pytest.mark.parametrize(
    ("rows", "heals"),
    [
        (ROWS, True),
        ([*ROWS[:2], row("discarded", 1, after={"stopped_by": "signal"}), *ROWS[3:]], False),
        ([*ROWS[:2], row("discarded", 1, after={"namespace": "shop.x", "selected": False}), *ROWS[3:]], False),
        ([*ROWS[:2], row("chunk", 1, "5:~", "renamed"), *ROWS[3:]], False),
        (
            [*ROWS[:2], row("discarded", 1, after={"namespace": "shop.a", "selected": None}), *ROWS[3:]],
            True,
        ),  # dropped: the stream tells
        ([row("plan", after=NOT_ALL_OF_A), *ROWS[1:]], False),
        ([row("plan", after={**PLAN, "complete": False}), *ROWS[1:]], False),
    ],
)
def test_a_gap_is_healed_by_a_snapshot_that_looked_at_every_collection_as_a_whole(rows: list[Row], heals: bool) -> None:
    snapshot = certificate_from_rows("s", rows)
    assert snapshot is not None
    assert snapshot.heals_up_to == ("0000006400000001:~" if heals else None)


@pytest.mark.parametrize(
    "rows", [ROWS[:-1], ROWS[1:], [row("plan", after={**PLAN, "complete": False, "chunks": []}), *ROWS[1:]]]
)
def test_a_snapshot_without_its_certificate_sweeps_nothing(rows: list[Row]) -> None:
    assert certificate_from_rows("s", rows) is None


# scenario: the design's "never fold across a discontinuity"
def test_a_patch_behind_a_gap_waits_for_a_document_from_behind_it() -> None:
    empty = b"\x05\0\0\0\0"
    gaps = gaps_of({GAPS_PROPERTY: gaps_json([Gap("3", "6")])})
    before, behind = Base("2", empty), Base("6:~", empty)
    assert list(fold_pending(before, {"3": empty, "5": empty, "7": empty}, gaps).pending) == ["5", "7"]
    assert list(fold_pending(behind, {"5": empty, "7": empty}, gaps).pending) == []
    assert gaps_of({}) == ()
    still_open = gaps_of({GAPS_PROPERTY: gaps_json([Gap.open_from("3")])})
    assert list(fold_pending(behind, {"7": empty}, still_open).pending) == ["7"]
    (closed,) = [gap.closed("6") for gap in still_open]
    assert list(fold_pending(behind, {"7": empty}, [closed]).pending) == []
    assert [
        (gap.is_open, gap.may_have_altered("5"), gap.may_have_altered("3"), gap.may_have_altered("7"))
        for gap in (*still_open, closed)
    ] == [
        (True, True, False, True),
        (False, True, False, False),
    ]
    assert not Gap("3", "6").may_have_altered("5"), "what comes out of a gap that hides nothing came whole"
    assert [Gap("3", "6", only).affects("shop.a") for only in (None, "shop.a", "shop.b")] == [True, True, False]
