"""Lives of a name: drops, renames and moves in stream order, against a simulated source."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import NamedTuple

import pytest
from hypothesis import given
from seeds import SEEDS

from strandline.model.lives import Lives, NameEvent
from strandline.model.namespaces import Namespace, NamespaceEvent
from strandline.silver.incarnations import Incarnations, arrivals_at

OLD, NEW = "01" * 16, "06" * 16
E1 = NameEvent("101:1", "create", NEW)
E2 = NameEvent("101:2", "drop", OLD)
E3 = NameEvent("200:2", "drop", NEW)


@pytest.mark.parametrize(
    ("events", "seen", "ends"),
    [
        pytest.param([E1, E2], {OLD: "100:1"}, [], id="E1 E2: a move up to 7.0 ends nothing"),
        pytest.param([E1, E2, E3], {OLD: "100:1"}, ["200:2"], id="E1 E2 E3: the drop of the moved collection"),
        pytest.param([E1, E3], {OLD: "100:1", NEW: "150:1"}, ["200:2"], id="E1 E3: a move of 8.0 shows no drop"),
        pytest.param([E3], {OLD: "100:1", NEW: "150:1"}, ["200:2"], id="E3: a move of 8.3 shows no event"),
        pytest.param([E3], {OLD: "100:1"}, ["200:2"], id="E3: no row has shown the new UUID"),
        pytest.param([E1, E2], {}, ["101:2"], id="E2: without a row of the old UUID, nothing is lost"),
        pytest.param([NameEvent("050:1", "create", OLD), E1, E2], {}, [], id="E2: its creation has shown the old UUID"),
        pytest.param(
            [NameEvent("100:2", "drop", OLD), E1, E3],
            {OLD: "090:1"},
            ["100:2", "200:2"],
            id="dropped, created, dropped",
        ),
        pytest.param(
            [E1, NameEvent("150:1", "here", OLD, drops_target=True), NameEvent("160:1", "drop", OLD)],
            {OLD: "090:1", NEW: "120:1"},
            ["150:1", "160:1"],
            id="the old UUID came back by a rename",
        ),
    ],
)
def test_a_drop_ends_a_life_unless_the_collection_was_moved(
    events: list[NameEvent], seen: dict[str, str], ends: list[str]
) -> None:
    for given_events in (events, events[::-1], events * 2):
        assert sorted(Lives.of(given_events, seen).ends) == ends


class Row(NamedTuple):
    namespace: Namespace
    position: str
    uuid: str
    key: int
    value: int | None


class Source:
    """A simulated source: its collections, and the rows and events that its stream shows."""

    def __init__(self, chance: random.Random) -> None:
        self._chance, self._tick, self._uuids, self._version = chance, 0, 0, chance.choice(["7.0", "8.0", "8.3"])
        self._sharded: set[str] = set()
        self.live: dict[Namespace, tuple[str, dict[int, int]]] = {}
        self.dropped: dict[tuple[Namespace, str], dict[int, int]] = {}
        self.rows: list[Row] = []
        self.events: list[NamespaceEvent] = []

    def run(self, steps: int) -> None:
        names = [Namespace("db", name) for name in "abc"]
        for _ in range(steps):
            name = self._chance.choice(names)
            uuid, documents = self.live.get(name, ("", {}))
            match self._chance.randrange(9) if uuid else 9:
                case 0:
                    del self.live[name]
                    self.events.append(NamespaceEvent(self._next(), name, uuid))
                    self.dropped[name, self.events[-1].position] = documents
                case 1:
                    self._rename(name, self._chance.choice([other for other in names if other != name]))
                case 2 | 3:
                    self._move(name, uuid, documents)
                case 4:  # a chunk of a snapshot that was planned before
                    at, chunk = f"{self._next()}~", self._chance.sample(range(4), self._chance.randrange(1, 5))
                    self.rows += [Row(name, at, uuid, key, documents[key]) for key in chunk if key in documents]
                case 9:
                    self.live[name] = (self._new_uuid(), {})
                    if self._chance.random() < 0.8:  # some collections are older than the capture
                        created = NamespaceEvent(self._next(), name, self.live[name][0], is_creation=True)
                        self.events.append(created)
                case _:
                    key, value = self._chance.randrange(4), None if self._chance.random() < 0.2 else self._tick
                    documents.pop(key, None)
                    if value is not None:
                        documents[key] = value
                    self.rows.append(Row(name, self._next(), uuid, key, value))

    def _rename(self, name: Namespace, to: Namespace) -> None:
        target, documents = self.live.get(to, (None, {}))
        self.events.append(NamespaceEvent(self._next(), name, self.live[name][0], to, target))
        self.dropped[to, self.events[-1].position] = documents
        self.live[to] = self.live.pop(name)

    def _move(self, name: Namespace, old: str, documents: dict[int, int]) -> None:
        """Move a collection as the server's version does. No version moves a sharded one by ``movePrimary``."""
        new = self._new_uuid()
        self.live[name] = (new, documents)
        if old in self._sharded or self._chance.random() < 0.3:  # a resharding: no event of the name
            self._sharded.add(new)
            return
        if self._chance.random() < 0.3:
            self._version = max(self._version, self._chance.choice(["8.0", "8.3"]))  # an upgrade
        if self._version in ("7.0", "8.0"):
            self.events.append(NamespaceEvent(self._next(), name, new, is_creation=True))
        if self._version == "7.0":
            self.events.append(NamespaceEvent(self._next(), name, old))

    def _new_uuid(self) -> str:
        self._uuids += 1
        return f"{self._uuids:04}"

    def _next(self) -> str:
        self._tick += 1
        return f"{self._tick:04}"

    def seen(self) -> dict[Namespace, dict[str, str]]:
        found: dict[Namespace, dict[str, str]] = {}
        for row in self.rows[::-1]:
            found.setdefault(row.namespace, {})[row.uuid] = row.position
        return found


def renames_to(name: Namespace, source: Source) -> list[NamespaceEvent]:
    return [event for event in source.events if event.to == name]


def living(name: Namespace, known: Incarnations, rows: Iterable[Row], end: str | None = None) -> dict[int, int]:
    """Return the documents of a table as silver keeps them: the newest row of each key, if its life has not ended.

    Args:
        end: Return those of the life that ended at this position, as silver archives them. None: those of today.
    """
    newest: dict[int, tuple[str, int | None]] = {}
    for row in rows:
        at = [
            one.at for one in known.arrivals if one.namespace == row.namespace and one.after < row.position < one.until
        ]
        if at or row.namespace == name:
            position = f"{max(at)}#{row.position}" if at else row.position
            if end is not None and position >= end:
                continue
            newest[row.key] = max(newest.get(row.key, ("", None)), (position, row.value))
    return {
        key: value
        for key, (position, value) in newest.items()
        if value is not None and known.lives.end_of(position) == end
    }


# promise 2; scenario: D06, H03, H04
@given(seed=SEEDS)
def test_moved_dropped_and_renamed_collections_keep_exactly_their_documents(seed: int) -> None:
    for number in range(10):
        chance = random.Random(f"{seed} {number}")
        source = Source(chance)
        source.run(chance.randrange(2, 60))
        seen, names = source.seen(), [Namespace("db", name) for name in "abc"]
        for name in names:
            known = Incarnations().after(
                source.events, name, seen.get(name, {}), arrivals_at(renames_to(name, source), source.events, seen)
            )
            assert living(name, known, source.rows) == source.live.get(name, ("", {}))[1], (seed, number)
            for (dropped, end), documents in source.dropped.items():
                assert dropped != name or living(name, known, source.rows, end) == documents, (seed, number)
            piecemeal = Incarnations()
            for event in chance.sample(source.events, len(source.events)) * 2:
                piecemeal = piecemeal.after([event], name, {})
            for uuid, position in seen.get(name, {}).items():
                piecemeal = piecemeal.after([], name, {uuid: position})
            assert piecemeal.lives == known.lives
            assert Incarnations.from_json(piecemeal.to_json()).lives.ends <= known.lives.ends
