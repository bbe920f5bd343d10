"""What is new in bronze, for which collections, and how far it reaches: one read for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from pipelines.errors import ResumePointLost
from pipelines.io.increments import inserted
from pipelines.io.tables import Tables
from pipelines.model.lake_format import column_names
from pipelines.model.namespaces import NAMESPACE_OPERATIONS, Namespace, NamespaceEvent, namespace_event
from pipelines.model.resume_token import ResumeToken
from pipelines.model.table_schemas import DOCUMENT_OPS
from pipelines.model.tables import TableName
from pipelines.silver.sweep import SnapshotCertificate, snapshot_certificate

_WHOLE: Final = "ends_outside_transaction"


@dataclass(frozen=True)
class Reach:
    """How far the rows of a range of versions reach, and whether that is a moment of the source."""

    position: str | None = None
    """Of the newest event; None: there is none in the range."""
    read_position: str | None = None
    """The newest at which a snapshot read."""
    whole: bool = True
    """It is certain that no transaction goes on behind the newest event."""
    snapshot_runs: bool = True

    def beside(self, position: str | None, read_position: str | None) -> Reach:
        """The same, where older rows reach those positions."""
        return replace(
            self, position=_later((self.position, position)), read_position=_later((self.read_position, read_position))
        )


@dataclass(frozen=True)
class BronzeIncrement:
    """Of a range of bronze's versions: which incarnations of which collections changed, and the drops and renames in it."""

    after: int
    changed: Mapping[Namespace, frozenset[str]] = field(default_factory=dict)
    """By name, the UUIDs of its rows."""
    events: tuple[NamespaceEvent, ...] = ()
    completed: tuple[tuple[int, SnapshotCertificate], ...] = ()
    """Snapshots that sweep, each with the version that completed it."""
    reach: Reach = Reach()

    @staticmethod
    def read(tables: Tables, bronze: TableName, after: int, through: int) -> BronzeIncrement:
        """I/O: reads rows of versions above *after*, up to *through*."""
        if after >= through:
            return BronzeIncrement(after)
        is_event = _is_event()
        is_completion = (F.col("op") == "snapshot") & (F.col("operation_type") == "completed")
        event = F.when(is_event, F.struct("position", "envelope")).alias("event")
        completion = F.when(is_completion, F.struct("snapshot_id", "_commit_version")).alias("completion")
        is_end = F.col("resume_token").isNotNull()
        found = inserted(tables, bronze, after + 1, through).where(
            F.col("op").isin(*DOCUMENT_OPS) | is_event | is_completion | is_end
        )
        rows = (
            found.groupBy("db", "collection", "collection_uuid", event, completion)
            .agg(*_reaching(is_end, _is_whole(bronze, found)))
            .collect()
        )
        changed: dict[Namespace, set[str]] = {}
        for row in rows:
            if row["event"] is None and row["completion"] is None and row["changes"]:
                changed.setdefault(Namespace(row["db"], row["collection"]), set()).add(row["collection_uuid"] or "")
        completions = [row["completion"] for row in rows if row["completion"] is not None]
        completed = [
            (row["_commit_version"], snapshot_certificate(tables, bronze, row["snapshot_id"])) for row in completions
        ]
        sweeping = tuple((version, snapshot) for version, snapshot in completed if snapshot is not None)
        return BronzeIncrement(
            after, {name: frozenset(uuids) for name, uuids in changed.items()}, _events(rows), sweeping, reach_of(rows)
        )

    @property
    def is_empty(self) -> bool:
        """Whether the range holds heartbeats and other control rows alone."""
        return not (self.changed or self.events or self.completed)

    @property
    def ended(self) -> frozenset[Namespace]:
        """Names that drops and renames speak of."""
        return frozenset(event.namespace for event in self.events)

    @property
    def healed(self) -> list[str]:
        """Positions up to which a snapshot that was completed heals gaps."""
        return [snapshot.heals_up_to for _, snapshot in self.completed if snapshot.heals_up_to is not None]

    def sweeping(self, namespace: Namespace, after: int) -> list[SnapshotCertificate]:
        """Snapshots completed after a version that can tell what is gone of a collection, in the order in which they began to read: of two
        that miss a document the first one ends it."""
        told = [(snapshot.position_for(namespace), snapshot) for at, snapshot in self.completed if at > after]
        in_order = sorted(
            ((position, snapshot) for position, snapshot in told if position is not None), key=lambda pair: pair[0]
        )
        return [snapshot for _, snapshot in in_order]

    def moved(self, before: Mapping[str, Namespace]) -> dict[str, Namespace]:
        """Where each renamed collection is now, by UUID; those that are gone are forgotten.

        Args:
            before: The same before these news.
        """
        now = dict(before)
        for event in sorted(self.events, key=lambda event: event.position):
            if event.to is not None and event.uuid is not None:
                now[event.uuid] = event.to
            else:
                now.pop(event.uuid or "", None)
            now.pop(event.target_uuid or "", None)
        return now

    def concerned(
        self, moved: Mapping[str, Namespace], known: Iterable[Namespace], admits: Callable[[str, str], bool]
    ) -> set[Namespace]:
        """Collections whose table has something to do; once a snapshot has looked at them, all that it looked at.

        Args:
            moved: As `moved` returns it: late rows of a renamed collection go where it is now.
            known: Collections that have a table.
            admits: Whether a collection is captured: a rename out of what is captured makes no table.
        """
        changed = {name for name in self.changed if not name.is_temporary}
        routed = {moved[uuid] for uuids in self.changed.values() for uuid in uuids if uuid in moved}
        arrived = {event.to for event in self.events if event.to is not None}
        ended = {event.namespace for event in self.events} & {*known, *changed}
        swept = {
            name for name in known if any(snapshot.position_for(name) is not None for _, snapshot in self.completed)
        }
        return changed | ended | swept | {name for name in routed | arrived if admits(*name) and not name.is_temporary}


def namespaces_that_ended(tables: Tables, bronze: TableName) -> frozenset[Namespace]:
    """I/O: names that the drops and renames in bronze speak of."""
    rows = tables.read(bronze).where(_is_event()).select(F.struct("position", "envelope").alias("event")).collect()
    return frozenset(event.namespace for event in _events(rows))


def _is_event() -> Column:
    return (F.col("op") == "ddl") & F.col("operation_type").isin(*NAMESPACE_OPERATIONS)


def _events(rows: Iterable[Row]) -> tuple[NamespaceEvent, ...]:
    found = (
        namespace_event(row["event"]["position"], bytes(row["event"]["envelope"]))
        for row in rows
        if row["event"] is not None
    )
    return tuple(event for event in found if event is not None)


def _is_whole(bronze: TableName, rows: DataFrame) -> Column:
    """Whether a row of bronze ends inside no transaction: rows of an older format say it in the column that they had."""
    present = set(rows.columns)
    return F.coalesce(*(F.col(name) for name in column_names(bronze, _WHOLE) if name in present)).alias(_WHOLE)


def _reaching(is_end: Column, is_whole: Column) -> list[Column]:
    """Of each group of bronze rows the newest event, READ and end of a batch, and how many rows change a document."""
    is_streamed = F.col("batch").isNotNull() & F.col("position").isNotNull()
    end = F.struct(F.coalesce("lineage", F.lit(1)).alias("lineage"), "batch", is_whole, "snapshot_id", "resume_token")
    return [
        F.count_if(F.col("op").isin(*DOCUMENT_OPS)).alias("changes"),
        F.max(F.when(is_streamed, F.struct("position", "source.txn_number"))).alias("newest"),
        F.max(F.when(F.col("op") == "r", F.col("position"))).alias("read"),
        F.max(F.when(is_end, end)).alias("end"),
    ]


def reach_of(rows: Sequence[Row]) -> Reach:
    """From groups of bronze rows, each with its newest event, READ and end of a batch."""
    newest = max(
        (row["newest"] for row in rows if row["newest"] is not None),
        key=lambda event: str(event["position"]),
        default=None,
    )
    end = max(
        (row["end"] for row in rows if row["end"] is not None),
        key=lambda end: (end["lineage"], end["batch"]),
        default=None,
    )
    whole = True
    if newest is not None and newest["txn_number"] is not None:
        token, event = _token_data(end), newest["position"].rpartition(":")[2]
        whole = token > event or (token == event and end is not None and bool(end[_WHOLE]))
    return Reach(
        None if newest is None else newest["position"],
        _later(row["read"] for row in rows),
        whole,
        snapshot_runs=end is None or end["snapshot_id"] is not None,
    )


def _token_data(end: Row | None) -> str:
    """Empty, which sorts before every token, where nothing ends a batch or its token cannot be read."""
    with suppress(ResumePointLost):
        return "" if end is None else ResumeToken.parse(end["resume_token"]).data
    return ""


def _later(positions: Iterable[str | None]) -> str | None:
    return max((position for position in positions if position is not None), default=None)
