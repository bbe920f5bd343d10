"""Incarnations of a table's collection: the lives of its name, and the rows that renames brought. Pure.

A drop deletes every document of a life of the name at the drop's position. A rename does the same for the old name.
For the new name, a rename inserts every document at the rename's position. MongoDB sends no events for these
documents, so drops and renames are applied to rows by position. A row that arrives late gets the same result.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from strandline.io.spark import column_functions as F
from strandline.model.lives import Lives, NameEvent
from strandline.model.namespaces import Namespace, NamespaceEvent
from strandline.model.tables import literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_MAX_REMEMBERED: Final = 40
_OWN, _OF_TENANTS = "strandline.incarnations", "strandline.tenants"
"""Properties of a table."""

NO_END: Final = "CAST(NULL AS STRING)"


class Arrival(NamedTuple):
    """Rows that a rename brought: rows of another name between two positions. They are placed right after *at*."""

    at: str
    namespace: Namespace
    after: str
    until: str


@dataclass(frozen=True)
class Incarnations:
    """Facts about the name of one table, and what follows from them.

    Attributes:
        events: Events of the name. Only the newest 40 are stored. A late snapshot chunk was read moments ago.
        seen: Smallest position of a row, by collection UUID.
        arrivals: Rows that renames brought here.
        drops: True if a drop ends the rows.
        renames: True if a rename ends the rows under the old name.
    """

    events: frozenset[NameEvent] = frozenset()
    seen: Mapping[str, str] = field(default_factory=dict)
    arrivals: tuple[Arrival, ...] = ()
    drops: bool = True
    renames: bool = True

    @staticmethod
    def from_json(text: str | None) -> Incarnations:
        content = json.loads(text) if text else {"events": [], "seen": {}, "arrivals": []}
        arrivals = (Arrival(at, Namespace.parse(name), *span) for at, name, *span in content["arrivals"])
        return Incarnations(
            frozenset(NameEvent(*event) for event in content["events"]), content["seen"], tuple(arrivals)
        )

    def to_json(self) -> str:
        events = sorted(self.events, key=lambda event: event.position)[-_MAX_REMEMBERED:]
        seen = dict(sorted(self.seen.items(), key=lambda entry: entry[1])[-_MAX_REMEMBERED:])
        arrivals = [(one.at, str(one.namespace), one.after, one.until) for one in self.arrivals[-_MAX_REMEMBERED:]]
        return json.dumps({"events": events, "seen": seen, "arrivals": arrivals})

    def without_tokens(self) -> Incarnations:
        """Return these incarnations with the times of ``seen`` alone: hundreds of tenants are in one property."""
        return replace(self, seen={uuid: at.partition(":")[0] + ":" for uuid, at in self.seen.items()})

    def under(self, *, drops: bool, renames: bool) -> Incarnations:
        """Return these incarnations for a table with other settings."""
        return replace(self, drops=drops, renames=renames)

    def after(
        self,
        events: Iterable[NamespaceEvent],
        namespace: Namespace,
        seen: Mapping[str, str],
        arrivals: Iterable[Arrival] = (),
    ) -> Incarnations:
        """Return these incarnations with new facts. Order and repetition of the facts do not matter."""
        own = (NameEvent.of(event, namespace) for event in events)
        first = {uuid: min(at, seen.get(uuid, at)) for uuid, at in {**seen, **self.seen}.items()}
        return replace(
            self,
            events=self.events | {event for event in own if event is not None},
            seen=first,
            arrivals=tuple(sorted({*self.arrivals, *arrivals})),
        )

    @cached_property
    def lives(self) -> Lives:
        """Lives of the name."""
        return Lives.of(self.events, self.seen, drops=self.drops, renames=self.renames)

    def new_ends(self, earlier: Incarnations) -> list[str]:
        """Return the positions, in order, of the ends that *earlier* lacks."""
        return sorted(self.lives.ends - earlier.lives.ends)

    def new_arrivals(self, earlier: Incarnations) -> list[Arrival]:
        """Return the arrivals that *earlier* lacks."""
        return sorted({*self.arrivals} - {*earlier.arrivals})

    def is_brought(self, arrivals: Iterable[Arrival] | None = None) -> Column:
        """Return a column: true if a rename brought the bronze row here. The row may bear any name.

        Args:
            arrivals: Renames to look for. None: all.
        """
        return F.expr(f"{_arrival_position(self.arrivals if arrivals is None else arrivals)} IS NOT NULL")

    def with_rename_positions(self, changes: DataFrame) -> DataFrame:
        """Move rows from before a rename to positions right after the rename.

        Their order is kept. They sort above all older rows of the name and below all newer ones.
        """
        if not self.arrivals:
            return changes
        at = F.expr(_arrival_position(self.arrivals))
        moved = F.concat(at, F.lit("#"), F.col("position"))
        return changes.withColumn("position", F.when(at.isNotNull(), moved).otherwise(F.col("position")))

    def end_position(self, ends: Sequence[str] | None = None) -> str:
        """Return SQL for the position at which the life of a silver row ended. NULL: it has not ended.

        Args:
            ends: Ends to look for. None: all.
        """
        return end_position(self.lives, ends)

    def with_tombstones(self, state: DataFrame, ends: Sequence[str] | None = None) -> DataFrame:
        """Return *state* (one row per key) with a tombstone for each key whose life has ended.

        Args:
            ends: See `end_position`.
        """
        ended_at = self.end_position(ends)
        if ended_at == NO_END:
            return state
        tombstone = {name: F.expr(f"if(_end IS NULL, {name}, {value})") for name, value in tombstone_at("_end").items()}
        return state.withColumn("_end", F.expr(ended_at)).withColumns(tombstone).drop("_end")


Facts = Mapping[Namespace, Incarnations]
"""Incarnations by collection. A table of one collection has one entry."""


def facts_in(properties: Mapping[str, str], namespace: Namespace) -> dict[Namespace, Incarnations]:
    """Return the facts in the properties of a table. *namespace*: the collection or the tenant table that it holds."""
    if not namespace.is_tenant_table:
        return {namespace: Incarnations.from_json(properties.get(_OWN))}
    tenants = json.loads(properties.get(_OF_TENANTS, "{}"))
    return {Namespace.parse(name): Incarnations.from_json(json.dumps(content)) for name, content in tenants.items()}


def fact_properties(facts: Facts, namespace: Namespace) -> dict[str, str]:
    """Return the table property that stores *facts*. *namespace*: see `facts_in`."""
    if not namespace.is_tenant_table:
        return {_OWN: facts[namespace].to_json()}
    tenants = {str(name): json.loads(one.without_tokens().to_json()) for name, one in sorted(facts.items())}
    return {_OF_TENANTS: json.dumps(tenants, separators=(",", ":"))}


def end_position(lives: Lives, ends: Sequence[str] | None = None) -> str:
    """Return SQL for `Lives.end_of` of the column ``_position``: see `Incarnations.end_position`."""
    positions = lives.ends if ends is None else lives.ends & set(ends)
    if not positions:
        return NO_END
    cases = (
        f"WHEN _position <= {literal(at)} THEN if(_position < {literal(at)}, {literal(at)}, NULL)"
        if at in positions
        else f"WHEN _position <= {literal(at)} THEN NULL"
        for at in lives.boundaries
    )
    return f"CASE {' '.join(cases)} END"


def are_one(lives: Lives, position: str, other: str) -> str:
    """Return SQL for `Lives.are_one`: true if two positions (SQL) belong to one life of the name."""
    if not lives.boundaries:
        return "true"
    first, last = f"least({position}, {other})", f"greatest({position}, {other})"
    between = (f"({first} <= {literal(at)} AND {literal(at)} < {last})" for at in lives.boundaries)
    return f"NOT ({' OR '.join(between)})"


def tombstone_at(position: str) -> dict[str, str]:
    """Return the SET clause (column → SQL) that turns a row into a tombstone at *position* (SQL)."""
    return {
        "_position": position,
        "_op": "'d'",
        "_deleted": "true",
        "_cluster_time": f"timestamp_seconds(CAST(conv(left({position}, 8), 16, 10) AS BIGINT))",
    }


def arrivals_at(
    renames: Iterable[NamespaceEvent], events: Iterable[NamespaceEvent], seen: Mapping[Namespace, Mapping[str, str]]
) -> list[Arrival]:
    """Return the rows that *renames* brought, under every name that their collections had.

    Args:
        events: Events of all names.
        seen: Smallest position of a row, by name and UUID.
    """
    by_name: dict[Namespace, list[NamespaceEvent]] = {}
    for event in events:
        for name in (event.namespace, event.to):
            if name is not None:
                by_name.setdefault(name, []).append(event)
    arrivals = []
    for rename in renames:
        origin: NamespaceEvent | None = rename
        while origin is not None:
            name, until = origin.namespace, origin.position
            own = (NameEvent.of(event, name) for event in by_name[name])
            lives = Lives.of((event for event in own if event is not None), seen.get(name, {}))
            begin = lives.begin_of(until)
            arrivals.append(Arrival(rename.position, name, begin, until))
            origin = next(
                (
                    rename_event
                    for rename_event in by_name[name]
                    if (rename_event.to, rename_event.position) == (name, begin)
                ),
                None,
            )
    return arrivals


def _arrival_position(arrivals: Iterable[Arrival]) -> str:
    """Return SQL for the position of the newest rename that brought a bronze row. NULL: none did."""
    cases = (
        f"WHEN db = {literal(one.namespace.db)} AND collection = {literal(one.namespace.collection)}"
        f" AND position > {literal(one.after)} AND position < {literal(one.until)} THEN {literal(one.at)}"
        for one in sorted(arrivals, reverse=True)
    )
    joined = " ".join(cases)
    return f"CASE {joined} END" if joined else NO_END
