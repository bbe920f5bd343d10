"""What is new in bronze, and for which collections: one read for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import Row
from pyspark.sql import functions as F

from pipelines.io.tables import Tables
from pipelines.model.columns import CHANGE_OPS
from pipelines.model.namespaces import NAMESPACE_OPERATIONS, Namespace, NamespaceEvent, namespace_event
from pipelines.model.tables import TableName
from pipelines.silver.sweep import Completed, completed_snapshot


@dataclass(frozen=True)
class News:
    """Of a range of bronze's versions: which incarnations of which collections changed, and the drops and renames in it."""

    after: int
    changed: Mapping[Namespace, frozenset[str]] = field(default_factory=dict)
    """By name, the UUIDs of its rows."""
    events: tuple[NamespaceEvent, ...] = ()
    completed: tuple[tuple[int, Completed], ...] = ()
    """Snapshots that sweep, each with the version that completed it."""

    @staticmethod
    def read(tables: Tables, bronze: TableName, after: int, through: int) -> News:
        """I/O: reads rows of versions above *after*, up to *through*."""
        if after >= through:
            return News(after)
        is_event = (F.col("op") == "ddl") & F.col("operation_type").isin(*NAMESPACE_OPERATIONS)
        is_completion = (F.col("op") == "snapshot") & (F.col("operation_type") == "completed")
        event = F.when(is_event, F.struct("position", "envelope")).alias("event")
        completion = F.when(is_completion, F.struct("snapshot_id", "_commit_version")).alias("completion")
        found = tables.changes(bronze, after + 1, through).where(F.col("op").isin(*CHANGE_OPS) | is_event | is_completion)
        rows = found.select("db", "collection", "collection_uuid", event, completion).distinct().collect()
        changed: dict[Namespace, set[str]] = {}
        for row in rows:
            if row["event"] is None and row["completion"] is None:
                changed.setdefault(Namespace(row["db"], row["collection"]), set()).add(row["collection_uuid"] or "")
        completions = [row["completion"] for row in rows if row["completion"] is not None]
        completed = [(row["_commit_version"], completed_snapshot(tables, bronze, row["snapshot_id"])) for row in completions]
        sweeping = tuple((version, snapshot) for version, snapshot in completed if snapshot is not None)
        return News(after, {name: frozenset(uuids) for name, uuids in changed.items()}, _events(rows), sweeping)

    def completed_after(self, version: int) -> list[Completed]:
        return [snapshot for at, snapshot in self.completed if at > version]

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

    def concerned(self, moved: Mapping[str, Namespace], known: Iterable[Namespace], admits: Callable[[str, str], bool]) -> set[Namespace]:
        """Collections whose table has something to do; once a snapshot has looked at everything, all.

        Args:
            moved: As `moved` returns it: late rows of a renamed collection go where it is now.
            known: Collections that have a table.
            admits: Whether a collection is captured: a rename out of what is captured makes no table.
        """
        changed = {name for name in self.changed if not name.is_temporary}
        routed = {moved[uuid] for uuids in self.changed.values() for uuid in uuids if uuid in moved}
        arrived = {event.to for event in self.events if event.to is not None}
        ended = {event.namespace for event in self.events} & {*known, *changed}
        swept = set(known) if self.completed else set()
        return changed | ended | swept | {name for name in routed | arrived if admits(*name) and not name.is_temporary}


def _events(rows: Iterable[Row]) -> tuple[NamespaceEvent, ...]:
    found = (namespace_event(row["event"]["position"], bytes(row["event"]["envelope"])) for row in rows if row["event"] is not None)
    return tuple(event for event in found if event is not None)
