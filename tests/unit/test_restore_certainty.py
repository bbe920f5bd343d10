"""Certainty of a restore: from a whole read, a creation or an end of the name on, and not across a gap."""

from __future__ import annotations

import pytest

from strandline.jobs.restore.certainty import Certainty, Span
from strandline.model.gap import Gap
from strandline.model.namespaces import Namespace, NamespaceEvent
from strandline.model.position import snapshot_position, streamed_position

A, B = Namespace("db", "a"), Namespace("db", "b")


def event(second: int) -> str:
    return streamed_position(second, 1, f"82{second:08x}")


def at(second: int, increment: int = 1) -> str:
    return snapshot_position(second, increment)


def created(second: int, name: Namespace = A, uuid: str = "1") -> NamespaceEvent:
    return NamespaceEvent(event(second), name, uuid, is_creation=True)


READ = {A: [Span(at(20), at(30))]}
SEEN = {A: {"1": event(10)}}
DROP = NamespaceEvent(event(50), A, "1")
RENAME = NamespaceEvent(event(60), A, "1", to=B)


@pytest.mark.parametrize(
    ("facts", "name", "second", "is_certain"),
    [
        (Certainty([], SEEN, READ, []), A, 29, False),
        (Certainty([], SEEN, READ, []), A, 30, True),
        (Certainty([created(40)], {}, {}, []), A, 39, False),
        (Certainty([created(40)], {}, {}, []), A, 40, True),
        (Certainty([created(40, uuid="2")], SEEN, {}, []), A, 45, False),  # a move: the name had a collection
        (Certainty([DROP], SEEN, {}, []), A, 49, False),
        (Certainty([DROP], SEEN, {}, []), A, 50, True),
        (Certainty([RENAME], SEEN, READ, []), B, 60, True),
        (Certainty([RENAME], SEEN, {}, []), B, 60, False),
        (Certainty([RENAME], SEEN, {}, []), A, 60, True),
        (Certainty([], SEEN, READ, [Gap(event(40), at(45))]), A, 40, True),  # lost events come after this one
        (Certainty([], SEEN, READ, [Gap(event(40), at(45))]), A, 41, False),
        (Certainty([], SEEN, READ, [Gap(event(40), at(45))]), A, 99, False),
        (Certainty([], SEEN, READ, [Gap(event(40), at(45), "db.b")]), A, 99, True),
        (Certainty([], SEEN, READ, [Gap("", at(19))]), A, 30, True),
        (Certainty([DROP], SEEN, READ, [Gap(event(40), at(45))]), A, 50, True),
        (Certainty([], SEEN, {A: [*READ[A], Span(at(46), at(47))]}, [Gap(event(40), at(45))]), A, 47, True),
        (Certainty([], SEEN, {A: [*READ[A], Span(at(44), at(47))]}, [Gap(event(40), at(45))]), A, 47, False),
        (Certainty([], SEEN, READ, [Gap.open_from(event(40))]), A, 99, False),
    ],
)
def test_a_collection_is_certain_from_a_whole_read_or_an_event_of_its_name_on(
    facts: Certainty, name: Namespace, second: int, is_certain: bool
) -> None:
    assert (facts.doubt(name, at(second)) is None) == is_certain


def test_names_before_their_creation_and_temporary_names_are_left_out() -> None:
    temporary = Namespace("db", "tmp.agg_out.1")
    facts = Certainty([created(40), created(40, temporary), RENAME], {}, {B: [Span(at(70), at(70))]}, [])
    assert [facts.names(at(second)) for second in (39, 40, 60)] == [[], [A], [B]]
    read_later = Certainty([], {}, {A: [Span(at(70), at(70))]}, [])
    assert read_later.names(at(39)) == [A], "it may have existed: the moment is refused"
