"""The bronze increment: new rows by collection, drops and renames, completed snapshots. One read for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from strandline.errors import ResumePointLost
from strandline.io.tables.table_store import TableStore
from strandline.model.namespaces import Namespace, NamespaceEvent, namespace_event
from strandline.model.resume_token import ResumeToken
from strandline.model.tables import TableName
from strandline.silver.increment_groups import Group, groups_by_spark
from strandline.silver.sweep import SnapshotCertificate, snapshot_certificate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from strandline.io.tables.spark_tables import Tables

_MAX_EARLIER_NAMES: Final = 20

EarlierNames = Mapping[Namespace, Mapping[Namespace, str]]
"""Earlier names of renamed collections, by current name, each with the position at which it was given up."""


@dataclass(frozen=True)
class Reach:
    """Newest positions in a range of bronze versions, and whether the range ends at a moment of the source."""

    position: str | None = None
    """Position of the newest event. None: no event in the range."""
    read_position: str | None = None
    """Newest position at which a snapshot read a chunk. None: no READ in the range."""
    ends_outside_transaction: bool = True
    """True if the newest event certainly is not in the middle of a transaction."""
    snapshot_runs: bool = True
    """True if the newest batch was committed during a snapshot, or if no batch ends in the range."""

    def merged_with(self, position: str | None, read_position: str | None) -> Reach:
        """Return this reach with each position raised to the given one, if that is larger."""
        return replace(
            self, position=_later((self.position, position)), read_position=_later((self.read_position, read_position))
        )


@dataclass(frozen=True)
class BronzeIncrement:
    """Changes in a range of bronze versions: changed and created collections, drops, renames, completed snapshots."""

    after: int
    """Bronze version before the range."""
    changed: Mapping[Namespace, Mapping[str, str]] = field(default_factory=dict)
    """Smallest position of the new rows, by collection name and UUID. An empty string stands for a row without a
    UUID."""
    events: tuple[NamespaceEvent, ...] = ()
    completed: tuple[tuple[int, SnapshotCertificate], ...] = ()
    """Certificates of completed snapshots, each with the bronze version that completed the snapshot."""
    reach: Reach = Reach()

    @staticmethod
    def read(tables: Tables, bronze: TableName, after: int, through: int) -> BronzeIncrement:
        """Read the increment. I/O: reads bronze rows of versions above *after*, up to and including *through*."""
        from strandline.io.tables.increments import rows_appended  # imports PySpark

        if after >= through:
            return BronzeIncrement(after)
        return BronzeIncrement.of(rows_appended(tables, bronze, after + 1, through), tables, bronze, after)

    @staticmethod
    def of(rows: DataFrame, tables: TableStore, bronze: TableName, after: int) -> BronzeIncrement:
        """Return the increment of *rows*, the output of `rows_appended`. I/O: reads them, and as `of_groups`."""
        return BronzeIncrement.of_groups(groups_by_spark(rows), tables, bronze, after)

    @staticmethod
    def of_groups(groups: Sequence[Group], tables: TableStore, bronze: TableName, after: int) -> BronzeIncrement:
        """Return the increment of grouped bronze rows. I/O: reads certificates of completed snapshots."""
        changed: dict[Namespace, dict[str, str]] = {}
        for row in groups:
            if row["event"] is None and row["completion"] is None and row["first"] is not None:
                first, uuid = changed.setdefault(Namespace(row["db"], row["collection"]), {}), row["collection_uuid"]
                first[uuid or ""] = min(first.get(uuid or "", row["first"]), row["first"])
        completions = [row["completion"] for row in groups if row["completion"] is not None]
        completed = [
            (row["_commit_version"], snapshot_certificate(tables, bronze, row["snapshot_id"])) for row in completions
        ]
        sweeping = tuple((version, snapshot) for version, snapshot in completed if snapshot is not None)
        return BronzeIncrement(after, changed, _events(groups), sweeping, reach_of(groups))

    @property
    def is_empty(self) -> bool:
        """Return True if the range holds only heartbeats and other control rows."""
        return not (self.changed or self.events or self.completed)

    @property
    def ended_names(self) -> frozenset[Namespace]:
        """Names that a drop or rename in the range ended."""
        return frozenset(event.namespace for event in self.events if not event.is_creation)

    @property
    def healed_positions(self) -> list[str]:
        """Positions up to which the completed snapshots heal gaps, one for each snapshot that heals any."""
        return [snapshot.heals_up_to for _, snapshot in self.completed if snapshot.heals_up_to is not None]

    def sweeping(self, namespace: Namespace, after: int) -> list[SnapshotCertificate]:
        """Return the snapshots, completed after version *after*, that can sweep a collection.

        They are ordered by the position at which they began to read: if two lack a document, the first one deletes it.
        """
        certificates = [(snapshot.sweep_position(namespace), snapshot) for at, snapshot in self.completed if at > after]
        in_order = sorted(
            ((position, snapshot) for position, snapshot in certificates if position is not None),
            key=lambda pair: pair[0],
        )
        return [snapshot for _, snapshot in in_order]

    def seen(self, namespace: Namespace) -> Mapping[str, str]:
        """Return the smallest position of a collection's new rows, by UUID."""
        return {uuid: position for uuid, position in self.changed.get(namespace, {}).items() if uuid}

    def renamed_from(
        self, before: Mapping[Namespace, Mapping[Namespace, str]]
    ) -> dict[Namespace, dict[Namespace, str]]:
        """Return, for each name that a rename gave, the earlier names and the position at which each was given up.

        Args:
            before: The same, before this increment.
        """
        now = {name: dict(earlier) for name, earlier in before.items()}
        for event in sorted(self.events, key=lambda event: event.position):
            if event.to is not None:
                moved = {**now.pop(event.namespace, {}), event.namespace: event.position}
                now[event.to] = dict(sorted(moved.items(), key=lambda entry: entry[1])[-_MAX_EARLIER_NAMES:])
        return now

    def affected_namespaces(
        self,
        renamed_from: EarlierNames,
        namespaces: Iterable[Namespace],
        admits: Callable[[str, str], bool],
    ) -> set[Namespace]:
        """Return the collections whose tables must be updated: changed, renamed, dropped, or read by a snapshot.

        Args:
            renamed_from: Output of `renamed_from`. Late rows of a renamed collection go to the table of its current
                name.
            namespaces: Collections that have a table.
            admits: True if a collection (database, name) is captured. A rename to a name that is not captured makes no
                table.
        """
        changed = {name for name in self.changed if not (name.is_temporary or name.is_internal)}
        first = {name: min(positions.values()) for name, positions in self.changed.items()}
        routed = {
            name
            for name, earlier in renamed_from.items()
            if any(old in first and first[old] < until for old, until in earlier.items())
        }
        renamed_to = {event.to for event in self.events if event.to is not None}
        ended = {event.namespace for event in self.events} & {*namespaces, *changed}
        swept = {
            name
            for name in namespaces
            if any(snapshot.sweep_position(name) is not None for _, snapshot in self.completed)
        }
        return (
            changed | ended | swept | {name for name in routed | renamed_to if admits(*name) and not name.is_temporary}
        )


def _events(groups: Iterable[Group]) -> tuple[NamespaceEvent, ...]:
    """Return the drops, renames and creations, once each: a rewind captures them again."""
    events = (one["event"] for one in groups if one["event"] is not None)
    name_events = dict.fromkeys(namespace_event(event["position"], bytes(event["envelope"])) for event in events)
    return tuple(event for event in name_events if event is not None)


def reach_of(rows: Sequence[Group]) -> Reach:
    """Combine grouped bronze rows into one `Reach`."""
    newest = max(
        (row["newest"] for row in rows if row["newest"] is not None),
        key=lambda event: str(event["position"]),
        default=None,
    )
    end = max(
        (row["end"] for row in rows if row["end"] is not None),
        key=lambda end: (end["epoch"], end["batch"]),
        default=None,
    )
    outside = True
    if newest is not None and newest["txn_number"] is not None:
        token, event = _token_data(end), newest["position"].rpartition(":")[2]
        outside = token > event or (token == event and end is not None and bool(end["ends_outside_transaction"]))
    return Reach(
        None if newest is None else newest["position"],
        _later(row["read"] for row in rows),
        outside,
        snapshot_runs=end is None or end["snapshot_id"] is not None,
    )


def _token_data(end: Group | None) -> str:
    """Return the resume token's data.

    Empty, which sorts before every token, without a batch end or a readable token.
    """
    with suppress(ResumePointLost):
        return "" if end is None else ResumeToken.parse(end["resume_token"]).data
    return ""


def _later(positions: Iterable[str | None]) -> str | None:
    return max((position for position in positions if position is not None), default=None)
