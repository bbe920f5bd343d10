"""Ranges of the continuous proof: what is kept of them when a collection is divided anew, and their summary."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bson

from strandline.control.proof import ProofRange, ProofTable, carried_over
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.jobs.reconcile.proof_plan import with_divided_end
from strandline.model.namespaces import Namespace
from strandline.model.position import snapshot_position
from strandline.model.tables import Lake

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
POSITIONS = [snapshot_position(1_800_000_000 + seconds, 1) for seconds in range(3)]


def bound(value: Any) -> bytes | None:
    return None if value is None else bson.encode({"_id": value})


def ranges(*bounds: int, **more: Any) -> list[ProofRange]:
    ends = zip([None, *bounds], [*bounds, None], strict=True)
    return [
        ProofRange("test", "shop", "orders", number, bound(lower), bound(upper), NOW, **more)
        for number, (lower, upper) in enumerate(ends)
    ]


def proven(row: ProofRange, position: str, minutes: int) -> ProofRange:
    return row.after(NOW + minutes * MINUTE, "run", documents=1, position=position, differences=0, due_again=True)


def test_a_new_division_keeps_the_oldest_proof_of_what_it_covers() -> None:
    old = [proven(row, POSITIONS[place], place) for place, row in enumerate(ranges(10, 20))]
    new = carried_over(old, ranges(5, 20, 30))
    assert [row.position for row in new] == [POSITIONS[0], POSITIONS[0], POSITIONS[2], POSITIONS[2]]
    assert [row.compared_at for row in new] == [old[place].compared_at for place in (0, 0, 2, 2)]
    assert [row.documents for row in new] == [None] * 4
    unproven = carried_over([*old[:2], ranges(10, 20)[2]], ranges(15))
    assert [row.position for row in unproven] == [POSITIONS[0], None], "a part was never equal"
    assert carried_over([], new) == new


def test_the_last_range_is_divided_at_new_ids() -> None:
    old = [proven(row, POSITIONS[0], 0) for row in ranges(10)]
    new = with_divided_end(old, [bound(20) or b"", bound(30) or b""])
    assert [(row.number, row.lower, row.upper) for row in new] == [
        (row.number, row.lower, row.upper) for row in ranges(10, 20, 30)
    ]
    assert {row.position for row in new} == {POSITIONS[0]}


def test_a_range_that_differs_keeps_its_proof_and_is_due_again_once_after_a_repair() -> None:
    first = proven(ranges()[0], POSITIONS[0], 0)
    differing = {"documents": 3, "position": POSITIONS[1], "differences": 2}
    repaired = first.after(NOW + MINUTE, "second", **differing, due_again=True)
    assert (repaired.position, repaired.compared_at, repaired.run_id) == (POSITIONS[0], None, "second")
    assert repaired.after(NOW + 2 * MINUTE, "third", **differing, due_again=True).compared_at == NOW + 2 * MINUTE
    equal = repaired.after(NOW + MINUTE, "third", **(differing | {"differences": 0}), due_again=True)
    assert (equal.position, equal.compared_at, equal.run_id) == (POSITIONS[1], NOW + MINUTE, None)


def test_the_summary_names_the_oldest_range_and_counts_differences(tmp_path: Path) -> None:
    table = ProofTable(DeltaRsTables(Lake(root=str(tmp_path))), "test")
    assert (table.status(), table.read()) == (None, {})
    rows = ranges(10, 20)
    table.write(rows)
    status = table.status()
    assert status is not None
    assert str(status) == "0 of 3 ranges were proven equal; oldest: shop.orders, range 0; differences: 0"
    table.write([proven(rows[0], POSITIONS[2], 2), proven(rows[1], POSITIONS[1], 1)])
    other = replace(rows[0], source="other", differences=7)
    table.write([proven(rows[2], POSITIONS[2], 3), other])
    status = table.status()
    assert status is not None
    assert str(status) == "equal up to 2027-01-15 08:00:01 UTC; oldest: shop.orders, range 1; differences: 0"
    stored = table.read()
    assert [row.lower for row in stored[Namespace("shop", "orders")]] == [row.lower for row in rows]
    table.delete(Namespace("shop", "orders"), 1)
    assert [row.number for row in table.read()[Namespace("shop", "orders")]] == [0]
    table.delete()
    assert table.read() == {}
    assert ProofTable(table.tables, "other").read()[Namespace("shop", "orders")] == [other]
