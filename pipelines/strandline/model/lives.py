"""Lives of a collection name, by stream order. Pure.

A name belongs to one collection at a time. A *life* of the name lasts from its creation to a drop, or to a rename. The
collection's UUID may change during a life: ``movePrimary`` and a resharding copy the documents into a collection with a
new UUID. So a row belongs to the life that holds its position, whatever its UUID.

Up to MongoDB 7.0, ``movePrimary`` shows the creation of the new UUID and then a drop of the old one. This drop ends no
life. Later versions show only the creation, or nothing.

Source: SERVER-69933 hides the drop since 8.0, SERVER-120349 hides the creation since 8.3.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from strandline.model.namespaces import Namespace, NamespaceEvent

_NOWHERE: Final = "~"
"""Sorts after every position."""


class NameEvent(NamedTuple):
    """Event of one name: a creation, a drop, a rename away from the name or to it."""

    position: str
    kind: Literal["create", "drop", "away", "here"]
    uuid: str | None
    drops_target: bool = False
    """True if the rename to the name dropped the collection that had it."""

    @staticmethod
    def of(event: NamespaceEvent, namespace: Namespace) -> NameEvent | None:
        """Return *event* as *namespace* sees it. None: it concerns other names only."""
        if event.to == namespace:
            drops_target = event.target_uuid is not None or event.uuid is None
            return NameEvent(event.position, "here", event.uuid, drops_target)
        if event.namespace != namespace:
            return None
        kind: Literal["create", "drop", "away"] = (
            "create" if event.is_creation else "drop" if event.to is None else "away"
        )
        return NameEvent(event.position, kind, event.uuid)


def boundaries(events: Iterable[NameEvent], seen: Mapping[str, str]) -> list[NameEvent]:
    """Return the events that end a life of the name or begin one by a rename, in stream order.

    Names are unique. So a creation of another UUID while the name has a collection can only be a move of that
    collection. A later drop of a UUID that was there before the creation is a leftover of the move: it ends nothing.

    Args:
        events: Events of the name, in any order, any number of times.
        seen: Smallest position of a row with the name, by UUID.
    """
    first, live, since, bounds = dict(seen), None, "", []
    for event in sorted(dict.fromkeys(events), key=lambda event: event.position):
        if event.kind in ("create", "here"):
            if event.kind == "here":
                bounds.append(event)
            live, since = event.uuid, event.position
            if event.uuid is not None:
                first[event.uuid] = min(first.get(event.uuid, _NOWHERE), event.position)
            continue
        was_moved = event.kind == "drop" and None not in (live, event.uuid) and event.uuid != live
        if was_moved and first.get(event.uuid or "", _NOWHERE) < since:
            continue
        bounds.append(event)
        live = None
    return bounds


@dataclass(frozen=True)
class Lives:
    """Lives of a name: sorted positions of their boundaries, and which of these end the rows of the life before."""

    boundaries: tuple[str, ...] = ()
    ends: frozenset[str] = frozenset()

    @staticmethod
    def of(events: Iterable[NameEvent], seen: Mapping[str, str], *, drops: bool = True, renames: bool = True) -> Lives:
        """Return the lives of a name. Arguments of the rule: see `boundaries`.

        Args:
            drops: True if a drop ends the rows.
            renames: True if a rename ends the rows under the old name.
        """
        bounds = boundaries(events, seen)
        is_end = {"drop": drops, "away": renames}
        ends = (event.position for event in bounds if is_end.get(event.kind, drops and event.drops_target))
        return Lives(tuple(event.position for event in bounds), frozenset(ends))

    def begin_of(self, end: str) -> str:
        """Return the boundary before the boundary *end*. Empty: none is known."""
        number = bisect_left(self.boundaries, end)
        return self.boundaries[number - 1] if number else ""

    def end_of(self, position: str) -> str | None:
        """Return the end of the life that holds *position*. None: it has not ended, or *position* is a boundary."""
        number = bisect_left(self.boundaries, position)
        if number == len(self.boundaries) or self.boundaries[number] == position:
            return None
        return self.boundaries[number] if self.boundaries[number] in self.ends else None

    def are_one(self, position: str, other: str) -> bool:
        """Return True if no life ended or began between two positions. A boundary belongs to the life that it ends."""
        return bisect_left(self.boundaries, position) == bisect_left(self.boundaries, other)


ONE_LIFE: Final = Lives()
"""Lives of a name that was never dropped or renamed."""
