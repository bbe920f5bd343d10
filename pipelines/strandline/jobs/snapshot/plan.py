"""The plan of a snapshot: the source's collections in chunks. It is made once and stored in bronze."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, Protocol

from strandline.errors import ConfigurationError
from strandline.model.namespaces import Namespace
from strandline.settings.capture import CaptureSettings
from strandline.source.chunk_plan import plan_chunks
from strandline.source.client import AnyClient, Collection, operation_time, query_error
from strandline.source.listing import captured_collections, list_source
from strandline.source.ranges import Range
from strandline.source.stages import Selection

SnapshotKind = Literal["initial", "incremental", "blocking", "scheduled"]


class SnapshotSource(Protocol):
    """A source to plan a snapshot of. `CaptureSession` is one."""

    @property
    def client(self) -> AnyClient:
        """Client, opened with ``raw=True``."""

    @property
    def settings(self) -> CaptureSettings: ...

    @property
    def selection(self) -> Selection: ...


@dataclass(frozen=True)
class Chunk:
    """A range of `_id` that is read and committed as one unit.

    A chunk keeps its number, and with it its lane: so the transaction numbers of a lane only rise.
    """

    number: int
    collection: Collection
    range: Range
    query: str | None = None
    """Query (JSON) that selects the documents to read. None: all documents."""
    sweeps: bool = False
    """True: silver makes a tombstone of every older row whose document this collection's chunks did not find."""
    key: tuple[str, ...] = ()
    """Fields of the document key of a scheduled collection, which is one chunk. Empty: `_id` of a captured one."""


@dataclass(frozen=True)
class Plan:
    """Chunks and options of one snapshot. It is committed before the first chunk."""

    chunks: tuple[Chunk, ...]
    lanes: int
    at: tuple[int, int] = (0, 0)
    """Operation time of the listing of the collections: seconds and increment."""
    complete: bool = False
    """True: every captured collection was listed. Silver then makes tombstones of all rows of a missing collection."""
    kind: SnapshotKind = "initial"
    signal: str | None = None
    """Key of the signal that requested the snapshot. None: no signal."""
    skipped: tuple[str, ...] = ()
    """Collections that exist, or may, and that the snapshot leaves out: of ``capture.starts``, ``scheduled``, and
    all views and time series. They are not swept."""

    def to_json(self) -> str:
        entries: list[dict[str, object]] = [
            {
                "db": chunk.collection.db,
                "collection": chunk.collection.name,
                "uuid": chunk.collection.uuid,
                "query": chunk.query,
                "sweeps": chunk.sweeps,
                "key": chunk.key,
                **chunk.range.to_json(),
            }
            for chunk in self.chunks
        ]
        header = {
            "kind": self.kind,
            "signal": self.signal,
            "lanes": self.lanes,
            "at": self.at,
            "complete": self.complete,
            "skipped": self.skipped,
        }
        return json.dumps(header | {"chunks": entries})

    @staticmethod
    def from_json(text: str) -> Plan:
        content = json.loads(text)
        chunks = (
            Chunk(
                number,
                Collection(entry["db"], entry["collection"], entry["uuid"]),
                Range.from_json(entry),
                entry["query"],
                entry["sweeps"],
                tuple(entry.get("key", ())),
            )
            for number, entry in enumerate(content["chunks"])
        )
        return Plan(
            tuple(chunks),
            content["lanes"],
            tuple(content["at"]),
            content["complete"],
            content["kind"],
            content["signal"],
            tuple(content.get("skipped", ())),
        )

    @property
    def collections(self) -> list[str]:
        """Distinct names of the collections, in the order of the plan."""
        return list(dict.fromkeys(str(chunk.collection) for chunk in self.chunks))

    @property
    def scheduled(self) -> list[str]:
        """Names of the scheduled collections."""
        return [str(chunk.collection) for chunk in self.chunks if chunk.key]


def make_plan(
    session: SnapshotSource,
    collections: Iterable[Collection] | None = None,
    taken_over: Iterable[Chunk] = (),
    *,
    sweeps: bool = False,
    kind: SnapshotKind = "initial",
    signal: str | None = None,
    query_of: Callable[[str], str | None] | None = None,
    scheduled: Iterable[str] = (),
) -> Plan:
    """Plan a snapshot.

    I/O: lists the source's collections and samples them for the bounds of their chunks.

    Args:
        collections: Collections to read as a whole. None: all captured collections; in an initial snapshot, only those
            that the settings allow.
        taken_over: Unread chunks of another snapshot. They are read, and never swept.
        sweeps: Sweep the collections, because earlier rows may exist. A collection with a query is not swept.
        signal: Key of the signal that requested the snapshot. None: no signal.
        query_of: Returns the query (JSON) for a collection's name, None for all documents. None: use the settings.
        scheduled: Scheduled collections to read, too.

    Raises:
        ConfigurationError: The server refuses a query, or refuses to read a collection.
        RetriableError: The server does not answer.
    """
    settings, client = session.settings, session.client
    query_of = query_of or settings.snapshot_collection_filter_overrides.get
    sweeps = sweeps and "delete" not in session.selection.skipped_operations
    at = operation_time(client)
    is_limited = collections is None and kind == "initial"
    listing = list_source(client, session.selection) if collections is None else None
    captured = list(collections or ()) if listing is None else list(listing.collections)
    selected = _read_by_themselves(session, captured) if is_limited else captured
    starts = [name for name in map(str, captured) if name in settings.starts] if is_limited else []
    _check_queries(
        client, {collection: query for collection in selected if (query := query_of(str(collection))) is not None}
    )
    whole = set(map(str, selected))
    unread = [replace(chunk, sweeps=False) for chunk in taken_over if str(chunk.collection) not in whole]
    fresh = [
        Chunk(0, collection, part, query, sweeps and query is None)
        for collection in selected
        for query in [query_of(str(collection))]
        for part in plan_chunks(client, collection, settings.chunk_size)
    ]
    whole_reads = [_scheduled_chunk(settings, name) for name in scheduled]
    chunks = tuple(replace(chunk, number=number) for number, chunk in enumerate([*unread, *fresh, *whole_reads]))
    complete = sweeps and collections is None and not (is_limited and settings.snapshot_include_collection_list)
    without_stream = () if listing is None else map(str, listing.left_out)
    skipped = tuple(dict.fromkeys((*starts, *settings.scheduled, *without_stream)))
    return Plan(chunks, settings.snapshot_max_threads, at, complete, kind, signal, skipped)


def _scheduled_chunk(settings: CaptureSettings, name: str) -> Chunk:
    return Chunk(0, Collection(*Namespace.parse(name), None), Range(), key=settings.schedule_of(name).key)


def _check_queries(client: AnyClient, queries: Mapping[Collection, str]) -> None:
    """Raise ConfigurationError if the server refuses a query."""
    for collection, query in queries.items():
        if (refusal := query_error(client, collection, query)) is not None:
            raise ConfigurationError(
                f"the filter for {collection} is refused: {refusal}",
                next_step="correct capture.snapshot_collection_filter_overrides",
            )


def is_paused(row_types: Sequence[str]) -> bool:
    """Return True if a snapshot is paused. Pure.

    Args:
        row_types: ``operation_type`` of the snapshot's control rows, oldest first.
    """
    return next((kind == "paused" for kind in reversed(row_types) if kind in ("paused", "resumed")), False)


def paused_seconds(control_history: Iterable[tuple[str, datetime]], now: datetime) -> float:
    """Return the total duration of a snapshot's pauses, in seconds. Pure.

    Args:
        control_history: ``operation_type`` and time of the snapshot's control rows, oldest first.
        now: End of a pause that is not over.
    """
    total, began = 0.0, None
    for kind, at in control_history:
        if kind == "paused":
            began = began or at
        elif kind in ("resumed", "stopped", "completed") and began is not None:
            total, began = total + (at - began).total_seconds(), None
    return total if began is None else total + max(0.0, (now - began).total_seconds())


def captured_for_snapshots(session: SnapshotSource) -> list[Collection]:
    """Return the captured collections that exist and that snapshots read without a signal.

    ``snapshot_include_collection_list`` allows them, and ``starts`` does not name them.

    I/O: lists the source's collections.
    """
    return _read_by_themselves(session, captured_collections(session.client, session.selection))


def _read_by_themselves(session: SnapshotSource, captured: Iterable[Collection]) -> list[Collection]:
    settings, matches = session.settings, session.selection.matches
    patterns = settings.snapshot_include_collection_list
    return [
        collection
        for collection in captured
        if str(collection) not in settings.starts
        and (not patterns or any(matches(pattern, str(collection)) for pattern in patterns))
    ]
