"""Which snapshots a capture takes, by Debezium's ``snapshot.mode``; and what of a collection one reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bson import json_util

SnapshotMode = Literal["always", "initial", "initial_only", "no_data", "when_needed", "configuration_based"]

_CODE = ("$where", "$function", "$accumulator")


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
    def of(mode: SnapshotMode, *, data: bool = False, stream: bool = True, on_data_error: bool = False) -> SnapshotPolicy:
        """*data*, *stream*, *on_data_error*: the flags of ``configuration_based``."""
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


def query_problems(query: str) -> list[str]:
    """What is wrong with a filter of a snapshot: no JSON document, or one that runs code in the server."""
    try:
        parsed = json_util.loads(query)
    except (ValueError, TypeError):
        return ["is no JSON"]
    if not isinstance(parsed, dict):
        return ["is no document"]
    return [f"uses {name}, which runs code in the server" for name in _CODE if name in _names(parsed)]


def _names(value: Any) -> set[str]:
    if isinstance(value, Mapping):
        return set(value) | {name for inner in value.values() for name in _names(inner)}
    if isinstance(value, list):
        return {name for inner in value for name in _names(inner)}
    return set()


def query_document(query: str | None) -> dict[str, Any]:
    """The filter as a document of BSON values; none is all."""
    return {} if query is None else dict(json_util.loads(query, json_options=json_util.JSONOptions(document_class=dict)))
