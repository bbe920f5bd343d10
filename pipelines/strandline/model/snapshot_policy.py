"""Snapshot policy of Debezium's ``snapshot.mode``, snapshot filters, chunk sizes and pace."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from bson import json_util

from strandline.model.json_input import parse_extended_json

SnapshotMode = Literal["always", "initial", "initial_only", "no_data", "when_needed", "configuration_based", "custom"]

_CODE = ("$where", "$function", "$accumulator")
_OUTSIDE = ("$out", "$merge", "$expr")
"""Operators that a signal's filter may not use. An ``$expr`` may fail at any document and would stop the snapshot."""

PACED_SECONDS: Final = 30.0
"""Maximum time by which a pace lengthens the read of one chunk.

The server keeps the state that a chunk reads for five minutes. A capture that ends waits for its chunks in progress.
"""
_MIN_PACED_DOCUMENTS: Final = 1_000
"""For smaller chunks the planner's sample is so large that the server scans the collection."""

SnapshotHook = Literal["snapshot_completed", "snapshot_aborted"]


class Snapshotter(Protocol):
    """User code of mode ``custom``, like Debezium's ``Snapshotter``: an entry point of the group
    ``strandline.snapshotters``.

    Capture creates it without arguments. It calls the methods at its start, and again when the history is lost. Answers
    may change between calls.

    `SnapshotHook` names two optional methods without arguments, which are not part of this protocol. Capture calls them
    when a snapshot of this snapshotter has completed, or was stopped by a signal.
    """

    def should_snapshot_data(self, *, offset_exists: bool) -> bool:
        """Return True to take a snapshot now. *offset_exists* False: first start, or first start after a reset."""

    def should_stream(self) -> bool:
        """Return True to capture changes after the snapshot."""

    def should_snapshot_on_data_error(self) -> bool:
        """Return True to take a snapshot when the history is lost."""


@dataclass(frozen=True)
class ChunkSize:
    """Approximate maximum size of a snapshot chunk, in *documents* and *bytes*.

    The limit that is reached first applies.
    """

    documents: int
    bytes: int = sys.maxsize


@dataclass(frozen=True)
class Pace:
    """Pace of one reader of chunks: at most so many documents per second, on average."""

    documents_per_second: float

    @property
    def chunk_documents(self) -> int:
        """Documents of a chunk that is read in about `PACED_SECONDS`. The wait for a larger one follows its commit."""
        return max(_MIN_PACED_DOCUMENTS, int(self.documents_per_second * PACED_SECONDS))

    @property
    def reply_documents(self) -> int:
        """Documents of one second, at least one: so that the server sends about one reply per second."""
        return max(1, int(self.documents_per_second))

    def seconds_for(self, documents: int) -> float:
        """Return the time that so many documents take."""
        return documents / self.documents_per_second


@dataclass(frozen=True)
class SnapshotPolicy:
    """Snapshots and streaming of a capture.

    Args:
        first: Take a snapshot at the first start, and after a reset.
        every: Take a snapshot at every start.
        streams: Capture changes after the snapshot.
        heals: Take a snapshot when the history is lost, whatever ``on_history_lost`` says.
    """

    first: bool
    every: bool = False
    streams: bool = True
    heals: bool = False

    @staticmethod
    def of(
        mode: SnapshotMode, *, data: bool = False, stream: bool = True, on_data_error: bool = False
    ) -> SnapshotPolicy:
        """Return the policy of any mode except ``custom``.

        The keyword arguments are the flags of ``configuration_based``.

        Raises:
            ValueError: The mode is ``custom``.
        """
        match mode:
            case "always":
                return SnapshotPolicy(first=True, every=True)
            case "initial":
                return SnapshotPolicy(first=True)
            case "initial_only":
                return SnapshotPolicy(first=True, streams=False)
            case "no_data":
                return SnapshotPolicy(first=False)
            case "when_needed":
                return SnapshotPolicy(first=True, heals=True)
            case "configuration_based":
                return SnapshotPolicy(first=data, streams=stream, heals=on_data_error)
            case "custom":
                raise ValueError("mode custom is what its snapshotter says")

    @staticmethod
    def from_snapshotter(snapshotter: Snapshotter) -> SnapshotPolicy:
        """Ask *snapshotter* and return its answers as a policy."""
        return SnapshotPolicy(
            first=snapshotter.should_snapshot_data(offset_exists=False),
            every=snapshotter.should_snapshot_data(offset_exists=True),
            streams=snapshotter.should_stream(),
            heals=snapshotter.should_snapshot_on_data_error(),
        )


def query_problems(query: str, *, from_outside: bool = False) -> list[str]:
    """Return the problems of a snapshot filter: not a JSON document, or an operator that runs code in the server.

    Args:
        from_outside: The filter comes from a signal, not from the settings. More operators are refused.
    """
    try:
        parsed = parse_extended_json(query)
    except ValueError:
        return ["is no JSON of a document"]
    if not isinstance(parsed, dict):
        return ["is no document"]
    names = _names(parsed)
    problems = [f"uses {name}, which runs code in the server" for name in _CODE if name in names]
    return problems + [f"uses {name}, which a signal may not" for name in _OUTSIDE if from_outside and name in names]


def _names(value: Any) -> set[str]:
    if isinstance(value, Mapping):
        return set(value) | {name for inner in value.values() for name in _names(inner)}
    if isinstance(value, list):
        return {name for inner in value for name in _names(inner)}
    return set()


def query_document(query: str | None) -> dict[str, Any]:
    """Return the filter as a document of BSON values. None gives the empty document, which matches all documents."""
    return (
        {} if query is None else dict(json_util.loads(query, json_options=json_util.JSONOptions(document_class=dict)))
    )
