"""Signals: requests of an operator, a notebook or the source to a running capture. Pure.

Signal types and fields are Debezium's. An invalid text gives `Refused`, never an exception.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, Literal, get_args

from strandline.model.regex_input import matching, outside_pattern_problem
from strandline.model.snapshot_policy import query_problems

SnapshotType = Literal["incremental", "blocking"]
Channel = Literal["table", "file", "source"]

_QUOTED = re.compile(r'"([^"]+)"\."([^"]+)"')
_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "execute-snapshot": frozenset({"type", "data-collections", "additional-conditions", "replace"}),
    "stop-snapshot": frozenset({"type", "data-collections"}),
    "pause-snapshot": frozenset({"type"}),
    "resume-snapshot": frozenset({"type"}),
    "log": frozenset({"message"}),
}


@dataclass(frozen=True)
class Signal:
    """Signal as it was sent."""

    id: str | None
    type: str | None
    data: str | None
    """JSON."""
    at: datetime | None = None
    by: str | None = None
    channel: Channel = "table"

    @property
    def key(self) -> str:
        """Identity of the signal: its id, or else a hash of its content. A repeated key is ignored."""
        if self.id:
            return self.id
        return sha256(
            "\0".join(map(str, (self.type, self.data, self.at, self.by))).encode("utf-8", "surrogatepass")
        ).hexdigest()[:32]


@dataclass(frozen=True)
class CollectionPatterns:
    """Patterns of collections: regular expressions (RE2) for ``database.collection``, anchored and case-sensitive.

    ``"database"."collection"`` in double quotes is a plain name.
    """

    patterns: tuple[str, ...]

    def matching(self, names: Sequence[str]) -> set[str]:
        """Return the *names* of collections that a pattern matches."""
        return {name for pattern in self.patterns for name in matching(_expression(pattern), names)}

    def match(self, name: str) -> bool:
        """Return True if a pattern matches the collection *name*."""
        return name in self.matching([name])


@dataclass(frozen=True)
class ExecuteSnapshot:
    """Request to read *collections* now.

    *conditions*: pairs of a collection pattern and a query (JSON) for its documents.
    """

    type: SnapshotType
    collections: CollectionPatterns
    conditions: tuple[tuple[str, str], ...] = ()
    replaces: bool = False
    """True: the running snapshot drops its unread chunks of *collections*."""

    def query_of(self, name: str) -> str | None:
        """Return the query for the collection *name*. None: read all documents."""
        return next((query for pattern, query in self.conditions if CollectionPatterns((pattern,)).match(name)), None)


@dataclass(frozen=True)
class StopSnapshot:
    """Request to end the running snapshot, or its unread part of *collections*. None: all collections."""

    collections: CollectionPatterns | None


@dataclass(frozen=True)
class SetPaused:
    """Request to pause (*paused* True) or resume the running snapshot."""

    paused: bool


@dataclass(frozen=True)
class LogMessage:
    """Request to write *message* to the log."""

    message: str


@dataclass(frozen=True)
class RejectedSignal:
    """Invalid signal, with the reason."""

    reason: str


Order = ExecuteSnapshot | StopSnapshot | SetPaused | LogMessage | RejectedSignal


def parse_signal(signal: Signal) -> Order:
    """Return the request of *signal*."""
    try:
        return _order(signal)
    except RecursionError:  # JSON can be parsed at a depth at which it cannot be written or walked
        return RejectedSignal("data is nested too deeply")


def _order(signal: Signal) -> Order:
    if signal.type is None or signal.type not in _FIELDS:
        return RejectedSignal(f"unknown type {signal.type!r} (known: {', '.join(_FIELDS)})")
    try:
        data = json.loads(signal.data or "{}")
    except ValueError:
        return RejectedSignal("data is no JSON")
    if not isinstance(data, dict):
        return RejectedSignal("data is no JSON object")
    unknown = sorted(set(data) - _FIELDS[signal.type])
    if unknown:  # a misspelt data-collections would stop everything instead of one
        return RejectedSignal(f"unknown fields in data: {', '.join(unknown)}")
    if signal.type == "log":
        return LogMessage(str(data.get("message", "")))
    return _snapshot_order(signal.type, data)


def _snapshot_order(word: str, data: Mapping[str, Any]) -> Order:
    kind, names = data.get("type"), data.get("data-collections", [])
    if kind is None and word == "stop-snapshot":
        return RejectedSignal("stop-snapshot needs a type: incremental or blocking")
    kind = "incremental" if kind is None else str(kind).lower()
    conditions, problems = _conditions(data.get("additional-conditions") or [])
    if kind not in get_args(SnapshotType):
        problems.append(f"unknown snapshot type {kind!r} (incremental, blocking)")
    problems += _name_problems(names)
    replaces = data.get("replace", False)
    if not isinstance(replaces, bool):
        problems.append("replace is neither true nor false")
    elif replaces and conditions:
        problems.append("a snapshot that replaces reads every document: leave out the filter")
    if problems:
        return RejectedSignal("; ".join(problems))
    if word in ("pause-snapshot", "resume-snapshot"):
        return SetPaused(paused=word == "pause-snapshot")
    if word == "stop-snapshot":
        return StopSnapshot(CollectionPatterns(tuple(names)) if names else None)
    if not names:
        return RejectedSignal("data-collections is empty: there is nothing to read")
    return ExecuteSnapshot(
        "blocking" if kind == "blocking" else "incremental", CollectionPatterns(tuple(names)), conditions, replaces
    )


def _conditions(entries: Any) -> tuple[tuple[tuple[str, str], ...], list[str]]:
    if not isinstance(entries, list):
        return (), ["additional-conditions is no list"]
    conditions, problems = [], []
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict) or set(entry) != {"data-collection", "filter"}:
            problems.append(f"condition {number} is no object with data-collection and filter")
            continue
        query = entry["filter"] if isinstance(entry["filter"], str) else json.dumps(entry["filter"])
        problems += [
            f"the filter of condition {number} {problem}" for problem in query_problems(query, from_outside=True)
        ]
        problems += _name_problems([entry["data-collection"]])
        conditions.append((str(entry["data-collection"]), query))
    return tuple(conditions), problems


def _name_problems(names: Any) -> list[str]:
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names) or isinstance(names, str):
        return ["data-collections is no list of texts"]
    judged = ((name, outside_pattern_problem(_expression(name))) for name in names)
    return [f"{name!r} {problem}" for name, problem in judged if problem is not None]


def _expression(pattern: str) -> str:
    quoted = _QUOTED.fullmatch(pattern.strip())
    return re.escape(f"{quoted[1]}.{quoted[2]}") if quoted else pattern.strip()
