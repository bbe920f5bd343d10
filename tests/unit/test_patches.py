"""Folding of one key: the newest document and the patches above it, in any order of arrival."""

from __future__ import annotations

import itertools

import bson
import pytest

from strandline.model.gap import GAPS_PROPERTY, Gap, gaps_json, gaps_of
from strandline.silver.fold.patches import FoldOutcome, fold_pending
from strandline.silver.fold.step import Base


def patch(**fields: object) -> bytes:
    return bson.encode({"updatedFields": fields, "removedFields": []})


def base(position: str, inexact: str | None = None, **fields: object) -> Base:
    return Base(position, bson.encode({"_id": 1, **fields}), inexact)


def document(outcome: FoldOutcome) -> tuple[str, dict[str, object]]:
    assert outcome.base is not None
    return outcome.base.position, bson.decode(outcome.base.document)


def test_patches_above_the_document_are_folded_in_order() -> None:
    outcome = fold_pending(base("b", n=1), {"d": patch(n=3), "c": patch(n=2, m=1), "a": patch(n=9), "b": patch(n=9)})
    assert document(outcome) == ("d", {"_id": 1, "n": 3, "m": 1})
    assert outcome.pending == {}


# scenario: C06
def test_patches_wait_for_their_document() -> None:
    waiting = fold_pending(None, {"c": patch(n=2), "b": patch(n=1)})
    assert waiting == FoldOutcome(None, {"b": patch(n=1), "c": patch(n=2)})
    assert document(fold_pending(base("b", n=1), waiting.pending)) == ("c", {"_id": 1, "n": 2})


@pytest.mark.parametrize("inexact", ["lookup", "capped"])
def test_patches_wait_above_an_inexact_document(inexact: str) -> None:
    newer = base("b", inexact, n=5)
    outcome = fold_pending(newer, {"a": patch(n=1), "c": patch(n=2)})
    assert outcome == FoldOutcome(newer, {"c": patch(n=2)})
    assert outcome.inexact_because == f"{inexact}, waiting"
    assert fold_pending(newer, {"c": patch(n=2), "e": patch(n=3)}, deleted_at="d") == FoldOutcome(
        newer, {"e": patch(n=3)}
    )


# scenario: J06
def test_a_change_that_bronze_does_not_hold_keeps_all_later_ones_waiting_until_a_newer_document_comes() -> None:
    outcome = fold_pending(base("a", n=1), {"b": patch(n=2), "c": None, "d": patch(m=1)})
    assert (document(outcome), list(outcome.pending)) == (("b", {"_id": 1, "n": 2}), ["c", "d"])
    assert outcome.inexact_because == "oversize, waiting"
    healed = fold_pending(base("c", n=3), outcome.pending)
    assert (document(healed), healed.inexact_because) == (("d", {"_id": 1, "n": 3, "m": 1}), None)
    assert fold_pending(None, {"c": None}).inexact_because == "oversize"


# scenario: B11: before MongoDB 6.1
def test_a_path_with_two_readings_makes_the_document_inexact_and_folding_goes_on() -> None:
    nested = bson.encode({"updatedFields": {"a.b": 2}, "removedFields": [], "truncatedArrays": []})
    outcome = fold_pending(base("a", a={"b": 1}), {"b": nested, "c": patch(n=1)})
    assert (document(outcome), outcome.pending) == (("c", {"_id": 1, "a": {"b": 2}, "n": 1}), {})
    assert outcome.inexact_because == "path"
    certain = bson.encode(
        {"updatedFields": {"a.b": 2}, "removedFields": [], "truncatedArrays": [], "disambiguatedPaths": {}}
    )
    assert fold_pending(base("a", a={"b": 1}), {"b": certain}).inexact_because is None


# promise 3: a later patch must not hide the loss of an earlier one
def test_a_patch_that_cannot_be_folded_blocks_later_patches() -> None:
    outcome = fold_pending(base("a", n=1), {"b": patch(n=2), "c": patch(**{"n.deep": 1}), "d": patch(m=1)})
    assert document(outcome) == ("b", {"_id": 1, "n": 2})
    assert list(outcome.pending) == ["c", "d"]


# promise 3; scenario: O06
def test_after_a_way_back_the_patches_captured_earlier_wait_for_those_between() -> None:
    """``e`` was captured first. Then the offset was moved back to before ``a``."""
    on_the_way = [Gap("", "e", again_from=7)]
    outcome = fold_pending(base("a", n=1, m=1), {"e": patch(m=5)}, on_the_way)
    assert (document(outcome), list(outcome.pending)) == (("a", {"_id": 1, "n": 1, "m": 1}), ["e"])
    outcome = fold_pending(outcome.base, {**outcome.pending, "c": patch(n=3)}, on_the_way)
    assert (document(outcome), list(outcome.pending)) == (("c", {"_id": 1, "n": 3, "m": 1}), ["e"])
    assert document(fold_pending(outcome.base, outcome.pending)) == ("e", {"_id": 1, "n": 3, "m": 5})
    cut_off = [Gap("", "e")]
    assert list(fold_pending(base("a", n=1), {"c": patch(n=3), "e": patch(m=5)}, cut_off).pending) == ["c", "e"]
    assert gaps_of({GAPS_PROPERTY: gaps_json([*on_the_way, *cut_off])}) == (*on_the_way, *cut_off)


def test_reads_may_arrive_at_any_moment_among_the_patches() -> None:
    patches = {"b": patch(n=2), "d": patch(m=1), "f": patch(n=6)}
    reads = {"a": base("a", n=1), "c": base("c", n=2), "e": base("e", n=2, m=1)}
    ends = []
    for order in itertools.permutations([*patches, *reads]):
        if [position for position in order if position in patches] != sorted(patches):
            continue  # the stream keeps its order
        outcome = FoldOutcome(None, {})
        for position in order:
            held = outcome.base
            newer = position in reads and (held is None or position > held.position)
            arriving = {position: patches[position]} if position in patches else {}
            outcome = fold_pending(reads[position] if newer else held, {**outcome.pending, **arriving})
        ends.append((document(outcome), outcome.pending))
    assert len(ends) == 120
    assert all(end == (("f", {"_id": 1, "n": 6, "m": 1}), {}) for end in ends)
