"""What a snapshot will read: the source's collections in chunks, decided once and kept in bronze."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from pipelines.errors import ConfigurationError
from pipelines.jobs.capture_session import CaptureSession
from pipelines.source.chunk_plan import plan_chunks
from pipelines.source.client import AnyClient, Collection, captured_collections, operation_time, query_error
from pipelines.source.ranges import Range

SnapshotKind = Literal["initial", "incremental", "blocking"]


@dataclass(frozen=True)
class Chunk:
    """One unit of resumption. Its lane and place in the plan never change, so a lane's transaction numbers only rise."""

    number: int
    collection: Collection
    range: Range
    query: str | None = None
    """Only documents that match (JSON)."""
    sweeps: bool = False
    """Whether silver retires what the chunks of this collection did not meet: they are all of it, and something was there before."""


@dataclass(frozen=True)
class Plan:
    """What a snapshot will read, committed before the first chunk."""

    chunks: tuple[Chunk, ...]
    lanes: int
    at: tuple[int, int] = (0, 0)
    """Operation time at which the collections were listed."""
    complete: bool = False
    """Whether every collection was listed, so that silver retires one that is missing: it was gone then."""
    kind: SnapshotKind = "initial"
    signal: str | None = None
    """The key of the signal that asked for it."""

    def to_json(self) -> str:
        entries: list[dict[str, object]] = [
            {
                "db": chunk.collection.db,
                "collection": chunk.collection.name,
                "uuid": chunk.collection.uuid,
                "query": chunk.query,
                "sweeps": chunk.sweeps,
                **chunk.range.to_json(),
            }
            for chunk in self.chunks
        ]
        said = {"kind": self.kind, "signal": self.signal, "lanes": self.lanes, "at": self.at, "complete": self.complete}
        return json.dumps(said | {"chunks": entries})

    @staticmethod
    def from_json(text: str) -> Plan:
        stored = json.loads(text)
        chunks = (
            Chunk(
                number,
                Collection(entry["db"], entry["collection"], entry["uuid"]),
                Range.from_json(entry),
                entry["query"],
                entry["sweeps"],
            )
            for number, entry in enumerate(stored["chunks"])
        )
        return Plan(
            tuple(chunks), stored["lanes"], tuple(stored["at"]), stored["complete"], stored["kind"], stored["signal"]
        )

    @property
    def collections(self) -> list[str]:
        """Their names, each once, in the order of the plan."""
        return list(dict.fromkeys(str(chunk.collection) for chunk in self.chunks))


def make_plan(
    session: CaptureSession,
    collections: Iterable[Collection] | None = None,
    taken_over: Iterable[Chunk] = (),
    *,
    sweeps: bool = False,
    kind: SnapshotKind = "initial",
    signal: str | None = None,
    query_of: Callable[[str], str | None] | None = None,
) -> Plan:
    """I/O: lists the source's collections and samples them for the bounds of their chunks.

    Args:
        collections: Only these, each as a whole; default: all that a snapshot reads.
        taken_over: Chunks that another snapshot has not read: they certify nothing any more.
        sweeps: There was something before it. A collection of which a query leaves something out is not swept all the same.
        query_of: By name, which documents of a collection are read; default: as the settings say.

    Raises:
        ConfigurationError: The server refuses a query, or to read a collection.
        RetriableError: It does not answer.
    """
    settings, client = session.settings, session.client
    query_of = query_of or settings.snapshot_collection_filter_overrides.get
    sweeps = sweeps and "delete" not in session.selection.skipped_operations
    at = operation_time(client)
    wanted = captured_for_snapshots(session) if collections is None else list(collections)
    _check_queries(client, {where: query for where in wanted if (query := query_of(str(where))) is not None})
    whole = set(map(str, wanted))
    left = [replace(chunk, sweeps=False) for chunk in taken_over if str(chunk.collection) not in whole]
    fresh = [
        Chunk(0, where, part, query, sweeps and query is None)
        for where in wanted
        for query in [query_of(str(where))]
        for part in plan_chunks(client, where, settings.chunk_size)
    ]
    chunks = tuple(replace(chunk, number=number) for number, chunk in enumerate([*left, *fresh]))
    complete = sweeps and collections is None and not settings.snapshot_include_collection_list
    return Plan(chunks, settings.snapshot_max_threads, at, complete, kind, signal)


def _check_queries(client: AnyClient, queries: Mapping[Collection, str]) -> None:
    """What the server says of them before one chunk is planned by them."""
    for where, query in queries.items():
        if (refusal := query_error(client, where, query)) is not None:
            raise ConfigurationError(
                f"the filter for {where} is refused: {refusal}",
                next_step="correct capture.snapshot_collection_filter_overrides",
            )


def is_held(words: Sequence[str]) -> bool:
    """Whether a snapshot waits: what its control rows say (``operation_type``), oldest first."""
    return next((word == "paused" for word in reversed(words) if word in ("paused", "resumed")), False)


def paused_seconds(marks: Iterable[tuple[str, datetime]], now: datetime) -> float:
    """How long a snapshot was paused, all pauses together; one that goes on ends *now*. Pure.

    Args:
        marks: Its control rows (``operation_type``, time), oldest first.
    """
    total, began = 0.0, None
    for word, at in marks:
        if word == "paused":
            began = began or at
        elif word in ("resumed", "stopped", "completed") and began is not None:
            total, began = total + (at - began).total_seconds(), None
    return total if began is None else total + max(0.0, (now - began).total_seconds())


def captured_for_snapshots(session: CaptureSession) -> list[Collection]:
    """I/O: captured collections that exist now and that ``snapshot_include_collection_list`` does not leave out."""
    patterns, selection = session.settings.snapshot_include_collection_list, session.selection
    captured = captured_collections(session.client, selection)
    return [
        where
        for where in captured
        if not patterns or any(selection.matches(pattern, str(where)) for pattern in patterns)
    ]
