"""One key: the newest document and the patches above it, whatever came first."""

from __future__ import annotations

import itertools

import bson
import pytest

from pipelines.model.gap import GAPS_PROPERTY, Gap, gaps_json, gaps_of
from pipelines.silver.document import document_in, is_exact
from pipelines.silver.patches import Base, Outcome, fold_pending


def patch(**fields: object) -> bytes:
    return bson.encode({"updatedFields": fields, "removedFields": []})


def base(position: str, exact: bool = True, **fields: object) -> Base:
    return Base(position, bson.encode({"_id": 1, **fields}), exact)


def document(outcome: Outcome) -> tuple[str, dict[str, object]]:
    assert outcome.base is not None
    return outcome.base.position, bson.decode(outcome.base.document)


def test_patches_above_the_document_are_folded_in_order() -> None:
    outcome = fold_pending(base("b", n=1), {"d": patch(n=3), "c": patch(n=2, m=1), "a": patch(n=9), "b": patch(n=9)})
    assert document(outcome) == ("d", {"_id": 1, "n": 3, "m": 1})
    assert outcome.pending == {}


# scenario: C06
def test_patches_wait_for_their_document() -> None:
    waiting = fold_pending(None, {"c": patch(n=2), "b": patch(n=1)})
    assert waiting == Outcome(None, {"b": patch(n=1), "c": patch(n=2)})
    assert document(fold_pending(base("b", n=1), waiting.pending)) == ("c", {"_id": 1, "n": 2})


def test_nothing_is_folded_onto_a_document_that_was_looked_up() -> None:
    looked_up = base("b", exact=False, n=5)
    assert fold_pending(looked_up, {"a": patch(n=1), "c": patch(n=2)}) == Outcome(looked_up, {"c": patch(n=2)})


# promise 3: a later patch must not hide the loss of an earlier one
def test_what_cannot_be_folded_keeps_all_later_patches_waiting() -> None:
    outcome = fold_pending(base("a", n=1), {"b": patch(n=2), "c": patch(**{"n.deep": 1}), "d": patch(m=1)})
    assert document(outcome) == ("b", {"_id": 1, "n": 2})
    assert list(outcome.pending) == ["c", "d"]


# promise 3; scenario: O06
def test_after_a_way_back_the_patches_captured_earlier_wait_for_those_between() -> None:
    """``e`` was captured first, then the position moved to before ``a``."""
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
        outcome = Outcome(None, {})
        for position in order:
            held = outcome.base
            newer = position in reads and (held is None or position > held.position)
            arriving = {position: patches[position]} if position in patches else {}
            outcome = fold_pending(reads[position] if newer else held, {**outcome.pending, **arriving})
        ends.append((document(outcome), outcome.pending))
    assert len(ends) == 120
    assert all(end == (("f", {"_id": 1, "n": 6, "m": 1}), {}) for end in ends)


@pytest.mark.parametrize(
    ("op", "operation", "exact"),
    [("r", None, True), ("c", "insert", True), ("u", "replace", True), ("u", "update", False), ("u", None, False)],
)
def test_a_document_that_was_looked_up_is_not_exact(op: str, operation: str | None, exact: bool) -> None:
    event = bson.encode({"fullDocument": {"_id": 1}} | ({"operationType": operation} if operation else {}))
    assert is_exact(op, event) is exact
    assert document_in(op, event) == (event if op == "r" else bson.encode({"_id": 1}))
