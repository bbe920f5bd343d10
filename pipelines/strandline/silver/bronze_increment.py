"""The bronze increment: new rows by collection, drops and renames, completed snapshots. One read for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from strandline.errors import ResumePointLost
from strandline.io.tables.increments import rows_appended
from strandline.io.tables.spark_tables import Tables
from strandline.model.namespaces import NAMESPACE_OPERATIONS, Namespace, NamespaceEvent, namespace_event
from strandline.model.resume_token import ResumeToken
from strandline.model.table_schemas import DOCUMENT_OPS
from strandline.model.tables import TableName
from strandline.silver.sweep import SnapshotCertificate, snapshot_certificate

_OUTSIDE: Final = "ends_outside_transaction"


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
    """Changes in a range of bronze versions: changed collections, drops and renames, completed snapshots."""

    after: int
    """Bronze version before the range."""
    changed: Mapping[Namespace, frozenset[str]] = field(default_factory=dict)
    """Collection UUIDs of the new rows, by collection name. An empty string stands for a row without a UUID."""
    events: tuple[NamespaceEvent, ...] = ()
    completed: tuple[tuple[int, SnapshotCertificate], ...] = ()
    """Certificates of completed snapshots, each with the bronze version that completed the snapshot."""
    reach: Reach = Reach()

    @staticmethod
    def read(tables: Tables, bronze: TableName, after: int, through: int) -> BronzeIncrement:
        """Read the increment. I/O: reads bronze rows of versions above *after*, up to and including *through*."""
        if after >= through:
            return BronzeIncrement(after)
        return BronzeIncrement.of(rows_appended(tables, bronze, after + 1, through), tables, bronze, after)

    @staticmethod
    def of(rows: DataFrame, tables: Tables, bronze: TableName, after: int) -> BronzeIncrement:
        """Return the increment of *rows*, the output of `inserted`. I/O: reads them, and certificates of snapshots."""
        is_event = _is_event()
        is_completion = (F.col("op") == "snapshot") & (F.col("operation_type") == "completed")
        event = F.when(is_event, F.struct("position", "envelope")).alias("event")
        completion = F.when(is_completion, F.struct("snapshot_id", "_commit_version")).alias("completion")
        is_end = F.col("resume_token").isNotNull()
        wanted = rows.where(F.col("op").isin(*DOCUMENT_OPS) | is_event | is_completion | is_end)
        found = (
            wanted.groupBy("db", "collection", "collection_uuid", event, completion).agg(*_reaching(is_end)).collect()
        )
        changed: dict[Namespace, set[str]] = {}
        for row in found:
            if row["event"] is None and row["completion"] is None and row["changes"]:
                changed.setdefault(Namespace(row["db"], row["collection"]), set()).add(row["collection_uuid"] or "")
        completions = [row["completion"] for row in found if row["completion"] is not None]
        completed = [
            (row["_commit_version"], snapshot_certificate(tables, bronze, row["snapshot_id"])) for row in completions
        ]
        sweeping = tuple((version, snapshot) for version, snapshot in completed if snapshot is not None)
        collections = {name: frozenset(uuids) for name, uuids in changed.items()}
        return BronzeIncrement(after, collections, _events(found), sweeping, reach_of(found))

    @staticmethod
    def of_batch(rows: pa.Table, after: int) -> BronzeIncrement | None:
        """Return the increment of rows that this process holds: columns of `BATCH`. Pure.

        None: a drop, a rename or a completed snapshot is among them. More than the batch must be read for these.
        """
        read = [name for name in rows.schema.names if name not in ("envelope", "cluster_time", "document_size")]
        changed: dict[Namespace, set[str]] = {}
        newest: dict[str, Any] | None = None
        reads: list[str | None] = [None]
        ends = []
        for row in rows.select(read).to_pylist():
            op, kind = row["op"], row["operation_type"]
            if (op == "ddl" and kind in NAMESPACE_OPERATIONS) or (op == "snapshot" and kind == "completed"):
                return None
            if op in DOCUMENT_OPS:
                changed.setdefault(Namespace(row["db"], row["collection"]), set()).add(row["collection_uuid"] or "")
            if op == "r":
                reads.append(row["position"])
            is_streamed = row["batch"] is not None and row["position"] is not None
            if is_streamed and (newest is None or row["position"] > newest["position"]):
                newest = {"position": row["position"], "txn_number": (row["source"] or {}).get("txn_number")}
            if row["resume_token"] is not None:
                ends.append(row)
        end = max(ends, key=lambda one: (one["epoch"], one["batch"] or 0), default=None)
        collections = {name: frozenset(uuids) for name, uuids in changed.items()}
        reach = reach_of([{"newest": newest, "read": _later(reads), "end": end}])
        return BronzeIncrement(after, collections, reach=reach)

    @property
    def is_empty(self) -> bool:
        """Return True if the range holds only heartbeats and other control rows."""
        return not (self.changed or self.events or self.completed)

    @property
    def ended_names(self) -> frozenset[Namespace]:
        """Names that a drop or rename in the range ended."""
        return frozenset(event.namespace for event in self.events)

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

    def current_names(self, before: Mapping[str, Namespace]) -> dict[str, Namespace]:
        """Return the current name of each renamed collection, by UUID. Dropped collections are removed.

        Args:
            before: Current names before this increment.
        """
        now = dict(before)
        for event in sorted(self.events, key=lambda event: event.position):
            if event.to is not None and event.uuid is not None:
                now[event.uuid] = event.to
            else:
                now.pop(event.uuid or "", None)
            now.pop(event.target_uuid or "", None)
        return now

    def affected_namespaces(
        self, current_names: Mapping[str, Namespace], known: Iterable[Namespace], admits: Callable[[str, str], bool]
    ) -> set[Namespace]:
        """Return the collections whose tables must be updated: changed, renamed, dropped, or read by a snapshot.

        Args:
            current_names: Output of `current_names`. Late rows of a renamed collection go to the table of its current
                name.
            known: Collections that have a table.
            admits: True if a collection (database, name) is captured. A rename to a name that is not captured makes no
                table.
        """
        changed = {name for name in self.changed if not name.is_temporary}
        routed = {current_names[uuid] for uuids in self.changed.values() for uuid in uuids if uuid in current_names}
        renamed_to = {event.to for event in self.events if event.to is not None}
        ended = {event.namespace for event in self.events} & {*known, *changed}
        swept = {
            name for name in known if any(snapshot.sweep_position(name) is not None for _, snapshot in self.completed)
        }
        return (
            changed | ended | swept | {name for name in routed | renamed_to if admits(*name) and not name.is_temporary}
        )


def _is_event() -> Column:
    return (F.col("op") == "ddl") & F.col("operation_type").isin(*NAMESPACE_OPERATIONS)


def _events(rows: Iterable[Row]) -> tuple[NamespaceEvent, ...]:
    found = (
        namespace_event(row["event"]["position"], bytes(row["event"]["envelope"]))
        for row in rows
        if row["event"] is not None
    )
    return tuple(event for event in found if event is not None)


def _reaching(is_end: Column) -> list[Column]:
    """Return aggregates of a group of bronze rows: count of document changes; newest event, READ and batch end."""
    is_streamed = F.col("batch").isNotNull() & F.col("position").isNotNull()
    end = F.struct("epoch", "batch", _OUTSIDE, "snapshot_id", "resume_token")
    return [
        F.count_if(F.col("op").isin(*DOCUMENT_OPS)).alias("changes"),
        F.max(F.when(is_streamed, F.struct("position", "source.txn_number"))).alias("newest"),
        F.max(F.when(F.col("op") == "r", F.col("position"))).alias("read"),
        F.max(F.when(is_end, end)).alias("end"),
    ]


def reach_of(rows: Sequence[Row | Mapping[str, Any]]) -> Reach:
    """Combine grouped bronze rows (columns of `_reaching`) into one `Reach`."""
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
        outside = token > event or (token == event and end is not None and bool(end[_OUTSIDE]))
    return Reach(
        None if newest is None else newest["position"],
        _later(row["read"] for row in rows),
        outside,
        snapshot_runs=end is None or end["snapshot_id"] is not None,
    )


def _token_data(end: Mapping[str, Any] | Row | None) -> str:
    """Return the resume token's data.

    Empty, which sorts before every token, without a batch end or a readable token.
    """
    with suppress(ResumePointLost):
        return "" if end is None else ResumeToken.parse(end["resume_token"]).data
    return ""


def _later(positions: Iterable[str | None]) -> str | None:
    return max((position for position in positions if position is not None), default=None)
