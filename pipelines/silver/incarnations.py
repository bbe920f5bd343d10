"""A name's lives: which collection (UUID) a table's rows belong to, when it came by a rename, and when it ended. Pure.

A drop is a delete of every document of one incarnation, at the drop's position. A rename is that for the old name, and for the new one an
insert of every document, at the rename's position: no event of the source says so for single documents. Both are applied to rows by
position, like everything else, so what arrives late finds the same end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.model.namespaces import Namespace, NamespaceEvent
from pipelines.model.tables import literal

_REMEMBERED: Final = 20
_NAMELESS: Final = ""
"""Stands for every incarnation: what a drop without a UUID ends."""


@dataclass(frozen=True)
class Incarnations:
    """Of one table, by collection UUID: the largest position at which the collection came by a rename, and at which it ended.

    Only the newest few are kept: a chunk of a snapshot that lands late was read a moment before, not twenty lives ago.
    """

    came: Mapping[str, str] = field(default_factory=dict)
    ended: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def from_json(text: str | None) -> Incarnations:
        stored = json.loads(text) if text else {"came": {}, "ended": {}}
        return Incarnations(stored["came"], stored["ended"])

    def to_json(self) -> str:
        return json.dumps({"came": _newest(self.came), "ended": _newest(self.ended)})

    def after(
        self, events: Iterable[NamespaceEvent], namespace: Namespace, *, drops: bool, renames: bool
    ) -> Incarnations:
        """What is known after *events*, in any order and any repetition.

        Args:
            drops: Whether a drop ends the rows.
            renames: Whether a rename ends the rows under the old name.
        """
        came, ended = dict(self.came), dict(self.ended)
        for event in events:
            if event.to == namespace:
                if event.uuid is not None:
                    _raise(came, event.uuid, event.position)
                if drops and (event.target_uuid is not None or event.uuid is None):
                    _raise(ended, event.target_uuid or _NAMELESS, event.position)
            if event.namespace == namespace and (drops if event.to is None else renames):
                _raise(ended, event.uuid or _NAMELESS, event.position)
        return Incarnations(came, ended)

    def newer_than(self, known: Incarnations) -> Incarnations:
        """What *known* does not hold yet."""
        return Incarnations(_news(self.came, known.came), _news(self.ended, known.ended))

    def brings(self) -> Column:
        """Whether a bronze row, whatever its name, is of a collection that came by a rename after it."""
        if not self.came:
            return F.lit(False)
        return F.coalesce(self._came_at() > F.col("position"), F.lit(False))

    def stamped(self, changes: DataFrame) -> DataFrame:
        """Put what a rename brought right after the rename: above all that had the name before, below all that follows, in its order."""
        if not self.came:
            return changes
        moved = F.concat(self._came_at(), F.lit("#"), F.col("position"))
        return changes.withColumn("position", F.when(self.brings(), moved).otherwise(F.col("position")))

    def end(self) -> str:
        """SQL: position at which the incarnation of a silver row ended; null where it lives. A row without a UUID may be any."""
        if not self.ended:
            return "CAST(NULL AS STRING)"
        own = f"try_element_at({_map(self.ended)}, _collection_uuid)"
        known = f"greatest({own}, {literal(self.ended[_NAMELESS])})" if _NAMELESS in self.ended else own
        return f"if(_collection_uuid IS NULL, {literal(max(self.ended.values()))}, {known})"

    def is_over(self) -> str:
        """SQL: whether a silver row's incarnation ended after its newest change."""
        return f"coalesce({self.end()} > _position, false)"

    def retired(self, state: DataFrame) -> DataFrame:
        """Collapsed changes, with a tombstone for each key whose incarnation is over."""
        if not self.ended:
            return state
        tombstone = {
            name: F.expr(f"if(_end > _position, {value}, {name})") for name, value in tombstone_at("_end").items()
        }
        return state.withColumn("_end", F.expr(self.end())).withColumns(tombstone).drop("_end")

    def _came_at(self) -> Column:
        return F.expr(f"try_element_at({_map(self.came)}, collection_uuid)")


@dataclass(frozen=True)
class Ends:
    """Every single end that is remembered, as (position, UUID): a collection that was renamed away may come back, and end again.

    A row of silver shows the newest state and needs the last end alone; a history needs each.
    """

    known: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def from_json(text: str | None) -> Ends:
        return Ends(tuple((position, uuid) for position, uuid in json.loads(text or "[]")))

    def to_json(self) -> str:
        return json.dumps(self.known)

    def after(self, events: Iterable[NamespaceEvent], namespace: Namespace, *, drops: bool, renames: bool) -> Ends:
        """What is known after *events*; as `Incarnations.after`."""
        lives = (Incarnations().after([event], namespace, drops=drops, renames=renames) for event in events)
        found = {(position, uuid) for life in lives for uuid, position in life.ended.items()}
        return Ends(tuple(sorted({*self.known, *found})[-_REMEMBERED:]))

    def above(self, position: str, uuid: str | None) -> str | None:
        """Where the life ended that a document of incarnation *uuid* had at *position*; None: it goes on. One without a UUID may be any."""
        found = (end for end, ended in self.known if end > position and (uuid is None or ended in (uuid, _NAMELESS)))
        return min(found, default=None)

    def column(self) -> Column:
        """The same for each row of a history; null for a version that is such an end itself, or that a pre-image alone tells of."""
        uuid, nowhere = F.col("_collection_uuid"), F.lit(None).cast("STRING")
        found = (
            F.when(
                (F.lit(end) > F.col("_position")) & (uuid.isNull() | uuid.isin(ended) | F.lit(ended == _NAMELESS)),
                F.lit(end),
            )
            for end, ended in self.known
        )
        return F.when(F.col("_captured_at").isNotNull() & (F.col("_op") != "b"), F.least(nowhere, nowhere, *found))


def tombstone_at(position: str) -> dict[str, str]:
    """SQL: what makes a row a tombstone at *position*."""
    return {
        "_position": position,
        "_op": "'d'",
        "_deleted": "true",
        "_cluster_time": f"timestamp_seconds(CAST(conv(left({position}, 8), 16, 10) AS BIGINT))",
    }


def _raise(positions: dict[str, str], uuid: str, position: str) -> None:
    positions[uuid] = max(positions.get(uuid, ""), position)


def _news(positions: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    return {uuid: position for uuid, position in positions.items() if position > known.get(uuid, "")}


def _newest(positions: Mapping[str, str]) -> dict[str, str]:
    return dict(sorted(positions.items(), key=lambda entry: entry[1])[-_REMEMBERED:])


def _map(entries: Mapping[str, str]) -> str:
    """As SQL: a call for each column of it takes longer than a small MERGE should."""
    return f"map({', '.join(literal(text) for entry in entries.items() for text in entry)})"
