"""Incarnations of a collection name: when each collection UUID was renamed to the name, and when it ended. Pure.

A drop deletes every document of one incarnation at the drop's position. A rename does the same for the old name. For
the new name, a rename inserts every document at the rename's position. MongoDB sends no events for these documents, so
drops and renames are applied to rows by position. A row that arrives late gets the same result.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from strandline.model.namespaces import Namespace, NamespaceEvent
from strandline.model.tables import literal

_MAX_REMEMBERED: Final = 20
_UNKNOWN_UUID: Final = ""
"""Key for a drop without a UUID (MongoDB before 6.0). It ends every incarnation."""


@dataclass(frozen=True)
class Incarnations:
    """Renames and ends of one table's collections, by UUID.

    Attributes:
        renamed_at: Largest position at which the collection was renamed to this name.
        ended_at: Largest position at which the collection was dropped or renamed away.

    Only the newest 20 of each are stored. A late snapshot chunk was read moments ago, not 20 drops ago.
    """

    renamed_at: Mapping[str, str] = field(default_factory=dict)
    ended_at: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def from_json(text: str | None) -> Incarnations:
        stored = json.loads(text) if text else {"came": {}, "ended": {}}
        return Incarnations(stored["came"], stored["ended"])

    def to_json(self) -> str:
        return json.dumps({"came": _newest(self.renamed_at), "ended": _newest(self.ended_at)})

    def after(
        self, events: Iterable[NamespaceEvent], namespace: Namespace, *, drops: bool, renames: bool
    ) -> Incarnations:
        """Return these incarnations with *events* applied. Order and repetition of the events do not matter.

        Args:
            drops: True if a drop ends the rows.
            renames: True if a rename ends the rows under the old name.
        """
        renamed_at, ended_at = dict(self.renamed_at), dict(self.ended_at)
        for event in events:
            if event.to == namespace:
                if event.uuid is not None:
                    _keep_larger(renamed_at, event.uuid, event.position)
                if drops and (event.target_uuid is not None or event.uuid is None):
                    _keep_larger(ended_at, event.target_uuid or _UNKNOWN_UUID, event.position)
            if event.namespace == namespace and (drops if event.to is None else renames):
                _keep_larger(ended_at, event.uuid or _UNKNOWN_UUID, event.position)
        return Incarnations(renamed_at, ended_at)

    def newer_than(self, known: Incarnations) -> Incarnations:
        """Return the entries that *known* lacks or holds with a smaller position."""
        return Incarnations(_newer(self.renamed_at, known.renamed_at), _newer(self.ended_at, known.ended_at))

    def precedes_rename(self) -> Column:
        """Return a column: true if the bronze row's collection was renamed to this name after the row.

        The row may bear any name.
        """
        if not self.renamed_at:
            return F.lit(False)
        return F.coalesce(self._renamed_at_column() > F.col("position"), F.lit(False))

    def with_rename_positions(self, changes: DataFrame) -> DataFrame:
        """Move rows from before a rename to positions right after the rename.

        Their order is kept. They sort above all older rows of the name and below all newer ones.
        """
        if not self.renamed_at:
            return changes
        moved = F.concat(self._renamed_at_column(), F.lit("#"), F.col("position"))
        return changes.withColumn("position", F.when(self.precedes_rename(), moved).otherwise(F.col("position")))

    def end_position(self) -> str:
        """Return SQL for the position at which a silver row's incarnation ended. NULL: it has not ended.

        A row without a UUID may belong to any incarnation, so the newest end counts.
        """
        if not self.ended_at:
            return "CAST(NULL AS STRING)"
        own = f"try_element_at({_sql_map(self.ended_at)}, _collection_uuid)"
        known = f"greatest({own}, {literal(self.ended_at[_UNKNOWN_UUID])})" if _UNKNOWN_UUID in self.ended_at else own
        return f"if(_collection_uuid IS NULL, {literal(max(self.ended_at.values()))}, {known})"

    def has_ended(self) -> str:
        """Return an SQL predicate: true if a silver row's incarnation ended after the row's newest change."""
        return f"coalesce({self.end_position()} > _position, false)"

    def with_tombstones(self, state: DataFrame) -> DataFrame:
        """Return *state* (one row per key) with a tombstone for each key whose incarnation has ended."""
        if not self.ended_at:
            return state
        tombstone = {
            name: F.expr(f"if(_end > _position, {value}, {name})") for name, value in tombstone_at("_end").items()
        }
        return state.withColumn("_end", F.expr(self.end_position())).withColumns(tombstone).drop("_end")

    def _renamed_at_column(self) -> Column:
        return F.expr(f"try_element_at({_sql_map(self.renamed_at)}, collection_uuid)")


@dataclass(frozen=True)
class IncarnationEnds:
    """Ends of incarnations, as (position, UUID) pairs: the newest 20 of earlier runs, and all of this run.

    A collection that was renamed away may be renamed back and end again. A silver row needs only the last end; a
    history needs every end.
    """

    known: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def from_json(text: str | None) -> IncarnationEnds:
        return IncarnationEnds(tuple((position, uuid) for position, uuid in json.loads(text or "[]")))

    def to_json(self) -> str:
        return json.dumps(self.known[-_MAX_REMEMBERED:])

    def after(
        self, events: Iterable[NamespaceEvent], namespace: Namespace, *, drops: bool, renames: bool
    ) -> IncarnationEnds:
        """Return these ends with the ends in *events* added. Arguments: see `Incarnations.after`."""
        single_events = (Incarnations().after([event], namespace, drops=drops, renames=renames) for event in events)
        found = {(position, uuid) for one_event in single_events for uuid, position in one_event.ended_at.items()}
        return IncarnationEnds(tuple(sorted({*self.known, *found})))

    def first_after(self, position: str, uuid: str | None) -> str | None:
        """Return the first end above *position* of the incarnation *uuid*. None: it has not ended.

        A document without a UUID (*uuid* is None) matches every end.
        """
        found = (
            end for end, ended in self.known if end > position and (uuid is None or ended in (uuid, _UNKNOWN_UUID))
        )
        return min(found, default=None)

    def end_column(self) -> Column:
        """Return a column: for each row of a history, the first end above its position.

        NULL: the incarnation has not ended, the row is itself such an end, or only a pre-image is known of the version.
        """
        uuid, nowhere = F.col("_collection_uuid"), F.lit(None).cast("STRING")
        found = (
            F.when(
                (F.lit(end) > F.col("_position")) & (uuid.isNull() | uuid.isin(ended) | F.lit(ended == _UNKNOWN_UUID)),
                F.lit(end),
            )
            for end, ended in self.known
        )
        return F.when(F.col("_captured_at").isNotNull() & (F.col("_op") != "b"), F.least(nowhere, nowhere, *found))


def tombstone_at(position: str) -> dict[str, str]:
    """Return the SET clause (column → SQL) that turns a row into a tombstone at *position* (SQL)."""
    return {
        "_position": position,
        "_op": "'d'",
        "_deleted": "true",
        "_cluster_time": f"timestamp_seconds(CAST(conv(left({position}, 8), 16, 10) AS BIGINT))",
    }


def _keep_larger(positions: dict[str, str], uuid: str, position: str) -> None:
    positions[uuid] = max(positions.get(uuid, ""), position)


def _newer(positions: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    return {uuid: position for uuid, position in positions.items() if position > known.get(uuid, "")}


def _newest(positions: Mapping[str, str]) -> dict[str, str]:
    return dict(sorted(positions.items(), key=lambda entry: entry[1])[-_MAX_REMEMBERED:])


def _sql_map(entries: Mapping[str, str]) -> str:
    """Return an SQL map literal.

    Built as text: with one Spark call per entry it took longer than a small MERGE should.
    """
    return f"map({', '.join(literal(text) for entry in entries.items() for text in entry)})"
