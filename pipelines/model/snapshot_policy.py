"""Which snapshots a capture takes, by Debezium's ``snapshot.mode``; what of a collection one reads, and in what pieces."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from bson import json_util

from pipelines.model.json_input import parse_extended_json

SnapshotMode = Literal["always", "initial", "initial_only", "no_data", "when_needed", "configuration_based", "custom"]

_CODE = ("$where", "$function", "$accumulator")
_OUTSIDE = ("$out", "$merge", "$expr")
"""Not in a query from outside either.

An ``$expr`` may fail at any document, and would end in the middle what it was asked for.
"""


SnapshotHook = Literal["snapshot_completed", "snapshot_aborted"]


class Snapshotter(Protocol):
    """What mode ``custom`` asks; Debezium's ``Snapshotter``.

    An entry point of the group ``strandline.snapshotters`` makes one, from no arguments. Asked when a capture starts,
    and again when the source has forgotten the history: answers may depend on anything.

    Two methods more are optional, so that they are no part of this protocol: `SnapshotHook`. They take no arguments,
    and are called when a snapshot that this snapshotter asked for has completed, or was stopped by a signal.
    """

    def should_snapshot_data(self, *, offset_exists: bool) -> bool:
        """Whether this start reads what exists. *offset_exists*: it is not the first one, nor the first after a reset."""

    def should_stream(self) -> bool:
        """Whether changes are captured after the snapshot."""

    def should_snapshot_on_data_error(self) -> bool:
        """Whether what exists is read when the source has forgotten the history."""


@dataclass(frozen=True)
class ChunkSize:
    """What one chunk of a snapshot holds, about: *documents* or *bytes*, whichever is reached first."""

    documents: int
    bytes: int = sys.maxsize


@dataclass(frozen=True)
class SnapshotPolicy:
    """What a mode means.

    Args:
        first: A snapshot at the first start, and after a reset.
        every: One at every start.
        streams: Changes are captured after the snapshot.
        heals: A snapshot when the source has forgotten the history, whatever ``on_history_lost`` says.
    """

    first: bool
    every: bool = False
    streams: bool = True
    heals: bool = False

    @staticmethod
    def of(
        mode: SnapshotMode, *, data: bool = False, stream: bool = True, on_data_error: bool = False
    ) -> SnapshotPolicy:
        """Of every mode but ``custom``. *data*, *stream*, *on_data_error*: the flags of ``configuration_based``.

        Raises:
            ValueError: Mode ``custom``.
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
        """What *snapshotter* answers now."""
        return SnapshotPolicy(
            first=snapshotter.should_snapshot_data(offset_exists=False),
            every=snapshotter.should_snapshot_data(offset_exists=True),
            streams=snapshotter.should_stream(),
            heals=snapshotter.should_snapshot_on_data_error(),
        )


def query_problems(query: str, *, from_outside: bool = False) -> list[str]:
    """What is wrong with a filter of a snapshot: no JSON document, or one that runs code in the server.

    Args:
        from_outside: Somebody else than the operator wrote it.
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
    """The filter as a document of BSON values; none is all."""
    return (
        {} if query is None else dict(json_util.loads(query, json_options=json_util.JSONOptions(document_class=dict)))
    )
