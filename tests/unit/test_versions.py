"""Versions of one document: the order and batching of facts do not matter, and each version has the right document."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import bson
import pytest
from hypothesis import given
from seeds import SEEDS

from strandline.model.gap import Gap
from strandline.model.lives import ONE_LIFE, Lives
from strandline.model.position import BEFORE_ALL
from strandline.silver.history.versions import Fact, Version, changed_versions, fact_of, versions_of

_AT = datetime(2026, 1, 1, tzinfo=UTC)


def at(moment: int, suffix: str = "82") -> str:
    return f"{moment:016x}:{suffix}"


def document(**fields: object) -> bytes:
    return bson.encode({"_id": 1, **fields})


def insert(moment: int, uuid: str | None = None, **fields: object) -> Fact:
    return Fact(at(moment), "c", uuid, _AT, document(**fields), exact=True)


def read(moment: int, uuid: str | None = None, **fields: object) -> Fact:
    return Fact(at(moment, "~"), "r", uuid, _AT, document(**fields), exact=True)


def patch(moment: int, uuid: str | None = None, **fields: object) -> Fact:
    return Fact(at(moment), "u", uuid, _AT, patch=bson.encode({"updatedFields": fields, "removedFields": []}))


def delete(moment: int, uuid: str | None = None) -> Fact:
    return Fact(at(moment), "d", uuid, _AT)


def end(moment: int, uuid: str | None = None) -> Fact:
    return Fact(at(moment), "d", uuid, None)


def told(versions: Sequence[Version]) -> list[tuple[int, str, object]]:
    """Start, operation and value ``v`` of each version."""
    shown = []
    for version in versions:
        value = None if version.document is None else bson.decode(version.document).get("v")
        shown.append((int(version.position[:16], 16), version.op, value))
    assert [version.until for version in versions] == [*(version.position for version in versions[1:]), None][
        : len(versions)
    ]
    return shown


def ended(*moments: int) -> Lives:
    """Lives of a name that ended at *moments*."""
    return Lives(tuple(map(at, moments)), frozenset(map(at, moments)))


class Table:
    """Stored versions of one key. Reads and changes them as the join and the MERGE do."""

    def __init__(self, **known: Any) -> None:
        self.rows: dict[str, Version] = {}
        self.known = known

    def merge(self, news: Sequence[Fact], lives: Lives = ONE_LIFE) -> list[str]:
        since = min(fact.position for fact in news)
        if self.known.get("hard_deletes") and any(fact.op == "d" for fact in news):
            since = ""
        held = [version for version in self.rows.values() if version.until is None or version.until >= since]
        changes = changed_versions(held, news, lives=lives, **self.known)
        for action, version in changes:
            if action == "remove":
                del self.rows[version.position]
            else:
                window_only = action == "window" and version.differs_only_in_window(self.rows[version.position])
                assert action == "write" or window_only
                self.rows[version.position] = version
        return [change.action for change in changes]

    @property
    def versions(self) -> list[Version]:
        return [self.rows[position] for position in sorted(self.rows)]


# scenario: D06, D07
def test_a_deletion_ends_a_version_and_an_insert_begins_the_next() -> None:
    table = Table()
    table.merge([insert(1, v=1), delete(3), insert(5, v=2)])
    assert told(table.versions) == [(1, "c", 1), (3, "d", None), (5, "c", 2)]
    assert table.merge([delete(3), insert(1, v=1)]) == []


def test_a_late_event_falls_into_its_place() -> None:
    table = Table()
    table.merge([insert(1, v=1)])
    table.merge([insert(9, v=9)])
    assert table.merge([insert(5, v=5)]) == ["window", "write"]
    assert told(table.versions) == [(1, "c", 1), (5, "c", 5), (9, "c", 9)]


def test_a_read_that_repeats_what_is_known_is_no_version_until_something_comes_between() -> None:
    table = Table()
    table.merge([insert(1, v=1)])
    assert table.merge([read(4, v=1)]) == ["window"]
    assert told(table.versions) == [(1, "c", 1)]
    assert table.merge([insert(3, v=3)]) == ["window", "write", "write"]
    assert told(table.versions) == [(1, "c", 1), (3, "c", 3), (4, "r", 1)]
    table.merge([insert(4, v=1)])
    assert told(table.versions) == [(1, "c", 1), (3, "c", 3), (4, "c", 1)]


# scenario: C06
def test_patches_are_folded_step_by_step_and_wait_for_a_document() -> None:
    table = Table()
    table.merge([patch(2, v=2), patch(3, v=3)])
    assert told(table.versions) == [(2, "u", None), (3, "u", None)]
    table.merge([read(1, v=1)])
    assert told(table.versions) == [(1, "r", 1), (2, "u", 2), (3, "u", 3)]
    assert [version.exact for version in table.versions] == [True, True, True]
    assert table.merge([patch(4, v=4)]) == ["window", "write"]
    assert told(table.versions)[-1] == (4, "u", 4)


def test_versions_fold_no_patch_across_a_gap_or_onto_a_lookup() -> None:
    table = Table(gaps=(Gap(at(2), at(3)),))
    table.merge([insert(1, v=1), patch(4, v=4)])
    assert told(table.versions) == [(1, "c", 1), (4, "u", None)]
    table.merge([read(3, v=1)])
    assert told(table.versions) == [(1, "c", 1), (4, "u", 4)]
    looked_up = replace(insert(1, v=1), op="u", exact=False)
    assert told(versions_of([looked_up, patch(2, v=2)], lives=ONE_LIFE)) == [(1, "u", 1), (2, "u", None)]


# scenario: B04
def test_a_pre_image_supplies_the_version_before_the_first_known_one() -> None:
    table = Table()
    table.merge([replace(insert(5, v=5), op="u", before=document(v=4))])
    assert told(table.versions) == [(0, "b", 4), (5, "u", 5)]
    assert table.versions[0].position == BEFORE_ALL
    assert table.merge([replace(insert(7, v=7), before=document(v=5))]) == ["window", "write"]
    table.merge([insert(2, v=4)])
    assert told(table.versions) == [(2, "c", 4), (5, "u", 5), (7, "c", 7)]


# scenario: B04, D04
def test_an_update_without_its_document_is_folded_onto_its_own_pre_image() -> None:
    event = bson.encode(
        {
            "operationType": "update",
            "fullDocument": None,
            "fullDocumentBeforeChange": {"_id": 1, "v": 1, "w": 1},
            "updateDescription": {"updatedFields": {"v": 2}, "removedFields": ["w"]},
        }
    )
    fact = fact_of(at(3), "u", None, _AT, event)
    assert (fact.document, fact.exact, fact.patch) == (document(v=2), True, None)
    gone = bson.encode({"operationType": "delete", "fullDocumentBeforeChange": {"_id": 1, "v": 2}})
    facts = [fact_of(at(4), "d", None, _AT, gone)]
    assert told(versions_of(facts, lives=ONE_LIFE)) == [(0, "b", 2), (4, "d", None)]


# scenario: C06, J06, B11
def test_versions_choose_bases_as_silver_does() -> None:
    nested = Fact(
        at(2),
        "u",
        None,
        _AT,
        patch=bson.encode({"updatedFields": {"w.x": 2}, "removedFields": [], "truncatedArrays": []}),
    )
    table = Table()
    table.merge([insert(1, v=1, w={"x": 1}), nested])
    table.merge([patch(3, v=3)])
    assert [version.exact for version in table.versions] == [True, False, False]
    assert bson.decode(table.versions[-1].document or b"") == {"_id": 1, "v": 3, "w": {"x": 2}}
    left_out = bson.encode({"operationType": "update", "_leftOut": ["fullDocument"]})
    table.merge([fact_of(at(4), "u", None, _AT, left_out), patch(5, v=5)])
    assert told(table.versions)[-2:] == [(4, "u", None), (5, "u", None)]
    newer = replace(read(6, v=6), exact=False)  # of a capped collection
    table.merge([newer, patch(7, v=7)])
    assert told(table.versions)[-2:] == [(6, "r", 6), (7, "u", None)]
    hidden = bson.encode(
        {"fullDocumentBeforeChange": {"_id": 1, "v": 1}, "updateDescription": {"updatedFields": {"v": 2}}}
    )
    assert fact_of(at(8), "u", None, _AT, hidden).document == document(v=2)
    assert fact_of(at(8), "u", None, _AT, hidden, gaps=[Gap.open_from(at(7))]).document is None


def test_the_end_of_a_life_ends_its_documents_and_no_others() -> None:
    table, ends = Table(), ended(5)
    table.merge([insert(1, "a", v=1)])
    table.merge([end(5, "a")], ends)
    assert told(table.versions) == [(1, "c", 1), (5, "d", None)]
    table.merge([read(2, "a", v=2)], ends)  # late, of the life that is over
    table.merge([insert(7, "b", v=7)], ends)
    assert told(table.versions) == [(1, "c", 1), (2, "r", 2), (5, "d", None), (7, "c", 7)]
    twice = ended(5, 8)
    table = Table()
    table.merge([insert(1, v=1), end(5)], twice)
    table.merge([insert(6, v=6)], twice)
    assert told(table.versions) == [(1, "c", 1), (5, "d", None), (6, "c", 6), (8, "d", None)]
    kept = Table()
    kept.merge([insert(4, "a", v=4), patch(6, "b", v=6)], Lives((at(5),)))
    assert told(kept.versions) == [(4, "c", 4), (6, "u", None)], "no patch is folded over a boundary that ends no rows"
    moved = Table()
    moved.merge([insert(4, "a", v=4), patch(6, "b", v=6)])  # E4
    assert told(moved.versions) == [(4, "c", 4), (6, "u", 6)], "a move of the collection is no boundary"


def test_of_two_that_were_looked_up_for_one_event_the_first_is_believed() -> None:
    first = replace(insert(3, v=3), op="u", exact=False)
    again = replace(first, document=document(v=9), captured_at=_AT + timedelta(hours=1))
    for order in ([first, again], [again, first]):
        table = Table()
        for fact in order:
            table.merge([fact])
        assert told(table.versions) == [(3, "u", 3)]


def test_hard_deletes_leave_nothing_of_what_was_before() -> None:
    table = Table(hard_deletes=True)
    table.merge([insert(1, v=1), insert(2, v=2)])
    assert table.merge([delete(5)]) == ["write", "remove", "remove"]
    table.merge([insert(7, v=7)])
    assert table.merge([read(3, v=2)]) == []
    assert told(table.versions) == [(5, "d", None), (7, "c", 7)]


def random_facts(chance: random.Random) -> tuple[list[Fact], Lives, dict[int, bytes | None]]:
    """Random facts about one document, lives of its collection's name, and the document at every moment."""
    facts: list[Fact] = []
    states: dict[int, bytes | None] = {}
    ends: list[int] = []
    uuid, now = "a", None
    for moment in range(1, chance.randint(2, 14)):
        before, choice = now, chance.random()
        if now is None:
            now = document(v=chance.randrange(3))
            facts.append(Fact(at(moment), "c", uuid, _AT, now, exact=True))
        elif choice < 0.15:
            now = None
            facts.append(Fact(at(moment), "d", uuid, _AT, before=chance.choice([before, None])))
        elif choice < 0.25:
            ends.append(moment)
            uuid, now = chr(ord(uuid) + 1), None
        elif choice < 0.3:
            uuid = chr(ord(uuid) + 1)  # a move
        elif choice < 0.6:
            now = document(v=moment)
            facts.append(replace(patch(moment, uuid, v=moment), before=chance.choice([before, None])))
        elif choice < 0.8:
            now = document(v=chance.randrange(3))
            facts.append(Fact(at(moment), "u", uuid, _AT, now, exact=True, before=before))
        states[moment] = now
        if now is not None and chance.random() < 0.4:
            facts.append(Fact(at(moment, "~"), "r", uuid, _AT + timedelta(seconds=moment), now, exact=True))
    return facts, ended(*ends), states


# promise 2; scenario: C12, C13, D06
@given(seed=SEEDS)
def test_any_order_any_batching_and_any_repetition_give_the_same_versions(seed: int) -> None:
    chance = random.Random(seed)
    facts, lives, states = random_facts(chance)
    kept = [fact for fact in facts if chance.random() < 0.8] or facts  # some never come
    hard = chance.random() < 0.3
    whole = versions_of(kept, lives=lives, hard_deletes=hard)
    messy = kept + chance.sample(kept, len(kept) // 2)
    chance.shuffle(messy)
    table, known = Table(hard_deletes=hard), ONE_LIFE
    arriving = list(lives.boundaries)[::-1]  # in the order of the stream
    while messy or arriving:
        batch = [messy.pop() for _ in range(min(len(messy), chance.randint(1, 4)))]
        if arriving and (chance.random() < 0.3 or not messy):
            known = Lives((*known.boundaries, arriving.pop()), lives.ends)
            over = {
                end
                for v in table.versions
                if v.captured_at and v.op != "b" and (end := known.end_of(v.position)) is not None
                if v.until is None or v.until > end
            }
            batch += [Fact(position, "d", None, None) for position in over]
        if batch:
            table.merge(batch, known)
    assert table.versions == whole
    if len(kept) == len(facts) and not hard:
        for moment, state in states.items():
            position = at(moment, "~")
            found = [
                v for v in whole if v.position <= position and (v.until is None or v.until > position) and not v.deleted
            ]
            assert [version.document for version in found] == ([] if state is None else [state])


@pytest.mark.parametrize(("position", "end"), [(1, 2), (2, None), (3, None), (6, 9), (9, None), (10, None)], ids=str)
def test_an_end_is_the_next_boundary_if_it_ends_rows(position: int, end: int | None) -> None:
    lives = Lives((at(2), at(5), at(9)), frozenset({at(2), at(9)}))
    assert lives.end_of(at(position)) == (None if end is None else at(end))
