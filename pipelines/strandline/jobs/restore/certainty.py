"""Certainty: does bronze hold a collection as it was at a moment? It does from a whole read or a creation on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

from strandline.io.tables.table_store import TableStore
from strandline.jobs.restore.moment import in_words
from strandline.jobs.snapshot.plan import Plan
from strandline.model.gap import Gap
from strandline.model.lives import NameEvent, boundaries
from strandline.model.namespaces import Namespace, NamespaceEvent
from strandline.model.position import cluster_time_of
from strandline.model.query import Query
from strandline.model.tables import TableName
from strandline.source.ranges import covers_all_ids

_KINDS: Final = ("plan", "chunk", "completed")
_TIME_DIGITS: Final = 16


class Span(NamedTuple):
    """Positions between which bronze got every document of a collection."""

    begin: str
    end: str


@dataclass(frozen=True)
class Certainty:
    """Facts that tell whether the documents of a collection at a moment are in bronze."""

    events: Sequence[NamespaceEvent]
    """Drops, renames and creations, of all names."""
    seen: Mapping[Namespace, Mapping[str, str]]
    """Smallest position of a row, by name and UUID."""
    reads: Mapping[Namespace, Sequence[Span]]
    """Complete reads of each collection by snapshots."""
    gaps: Sequence[Gap]

    def doubt(self, namespace: Namespace, moment: str) -> str | None:
        """Return the reason why bronze may lack documents of the collection before the position *moment*.

        None: it lacks none.
        """
        spans = [span for span in self._spans(namespace, moment) if span.end <= moment]
        if not spans:
            ends = sorted(span.end for span in self.reads.get(namespace, ()))
            when = f": it was first read whole by {in_words(cluster_time_of(ends[0]))}" if ends else ""
            return f"bronze does not hold {namespace} whole at that moment{when}"
        # by cluster time: the event after which a gap begins is the last one of its time
        own = [gap for gap in self.gaps if gap.affects(str(namespace))]
        gaps = [gap for gap in own if gap.after[:_TIME_DIGITS] < moment[:_TIME_DIGITS]]
        doubts = [[gap for gap in gaps if gap.before > span.begin] for span in spans]
        return None if any(not later for later in doubts) else min(doubts, key=len)[0].summary()

    def exists(self, namespace: Namespace, moment: str) -> bool:
        """Return True if the name had a collection before *moment*, or may have had one. It may have been empty."""
        own = self._own(namespace)
        before = [event for event in own if event.position < moment]
        if before:
            return before[-1].kind in ("create", "here")
        is_later = bool(own) and own[0].kind in ("create", "here")
        return self._is_seen(namespace, moment) or (namespace in self.reads and not is_later)

    def names(self, moment: str) -> list[Namespace]:
        """Return the collections that existed, or may have existed, at some time before *moment*, sorted by name."""
        named = {*self.seen, *self.reads, *(event.to or event.namespace for event in self.events)}
        candidates = sorted(name for name in named if not (name.is_temporary or name.is_internal))
        return [name for name in candidates if self._is_seen(name, moment) or self.exists(name, moment)]

    def _is_seen(self, namespace: Namespace, moment: str) -> bool:
        return any(first <= moment for first in self.seen.get(namespace, {}).values())

    def _own(self, namespace: Namespace) -> list[NameEvent]:
        named = (NameEvent.of(event, namespace) for event in self.events)
        return sorted(event for event in named if event is not None)

    def _spans(self, namespace: Namespace, moment: str) -> Iterator[Span]:
        """Yield the reads of the collection, and the positions before *moment* at which its content was certain.

        A new collection and a name without a collection hold no document. A rename keeps what is certain.
        """
        yield from self.reads.get(namespace, ())
        own = [event for event in self._own(namespace) if event.position < moment]
        seen = self.seen.get(namespace, {})
        origins = {event.position: event.namespace for event in self.events if event.to == namespace}
        ends = {event.position for event in boundaries(own, seen) if event.kind != "here"}
        has_collection = bool(own) and any(first < own[0].position for first in seen.values())
        for event in own:
            if event.kind == "here":
                is_certain = self.doubt(origins[event.position], event.position) is None
            else:
                is_certain = event.position in ends or (event.kind == "create" and not has_collection)
            if is_certain:
                yield Span(event.position, event.position)
            has_collection = event.kind in ("create", "here")


def complete_reads(tables: TableStore, bronze: TableName) -> dict[Namespace, list[Span]]:
    """Return the complete reads of each collection. I/O: reads the control rows of all snapshots in bronze.

    A read is complete if its chunks were all committed, cover every `_id`, and leave out no document by a query. Its
    snapshot is completed, because only then it sweeps the documents that it did not find.
    """
    wanted_rows = Query(bronze).where(("op", "=", "snapshot"), ("operation_type", "in", _KINDS))
    columns = ("snapshot_id", "operation_type", "db", "collection", "chunk", "position", "after")
    rows = sorted(tables.query(wanted_rows.select(*columns)), key=lambda row: str(row["snapshot_id"]))
    reads: dict[Namespace, list[Span]] = {}
    for _, of_snapshot in groupby(rows, key=lambda row: row["snapshot_id"]):
        own = list(of_snapshot)
        if not any(row["operation_type"] == "completed" for row in own):
            continue
        positions = {(row["chunk"], row["db"], row["collection"]): row["position"] for row in own}
        for plan in (Plan.from_json(row["after"]) for row in own if row["operation_type"] == "plan"):
            for collection in {chunk.collection for chunk in plan.chunks}:
                namespace = Namespace(collection.db, collection.name)
                chunks = [chunk for chunk in plan.chunks if chunk.collection == collection and chunk.query is None]
                times = [positions.get((chunk.number, *namespace)) for chunk in chunks]
                read_at = [at for at in times if at is not None]
                if read_at and len(read_at) == len(chunks) and covers_all_ids([chunk.range for chunk in chunks]):
                    reads.setdefault(namespace, []).append(Span(min(read_at), max(read_at)))
    return reads
