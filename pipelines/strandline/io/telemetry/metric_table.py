"""The table of all metrics. The documentation is generated from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["counter", "gauge", "histogram"]
Place = Literal["process", "tables"]


@dataclass(frozen=True)
class Described:
    """One metric.

    Args:
        name: Name of the series, without the suffixes of a histogram.
        place: ``process``: the endpoint of `capture` and `run`. ``tables``: `strandline metrics`.
        labels: Labels beside ``source`` and those of ``metrics.tags``.
        origin: Attributes of Debezium (``streaming.Connected``) and of KIP-298 (``kip.total-retries``) that it is.
    """

    name: str
    kind: Kind
    place: Place
    text: str
    labels: tuple[str, ...] = ()
    origin: tuple[str, ...] = ()


_DESCRIBED: Final[dict[tuple[Place, str], Described]] = {}


def describe(
    name: str, kind: Kind, text: str, *, labels: tuple[str, ...] = (), origin: str = "", place: Place = "process"
) -> str:
    """Enter a metric into the table, and return the name that the client library expects.

    Args:
        origin: See `Described.origin`; separated by blanks.
    """
    shown = f"strandline_{name}" + ("_total" if kind == "counter" else "")
    _DESCRIBED[place, shown] = Described(shown, kind, place, text, labels, tuple(origin.split()))
    return f"strandline_{name}"


def described() -> list[Described]:
    """Return all metrics, in the order in which they were entered."""
    return list(_DESCRIBED.values())


STATE: Final = {
    "snapshot.LastEvent": "`snapshot.chunk`",
    "snapshot.CapturedTables": "`stream.captured_collections`",
    "snapshot.ChunkId": "`snapshot.chunk.number`",
    "snapshot.ChunkFrom": "`snapshot.chunk.lower`, with `logging.show_keys`",
    "snapshot.ChunkTo": "`snapshot.chunk.upper`, with `logging.show_keys`",
    "snapshot.TableFrom": "always the smallest `_id`: a snapshot reads whole collections",
    "snapshot.TableTo": "always the largest `_id`",
    "streaming.LastEvent": "`stream.last_event`",
    "streaming.CapturedTables": "`stream.captured_collections`",
    "streaming.SourceEventPosition": "`stream.last_event.position`",
    "streaming.LastTransactionId": "`stream.last_transaction`",
}
"""Attributes of Debezium that are texts. As labels they would make a new series for each value. `/state` has them."""
UNKNOWN: Final = {
    "snapshot.NumberOfEventsFiltered": "not known: the server applies the filters",
    "snapshot.QueueTotalCapacity": "no queue: workers write a chunk into a file as they read it",
    "snapshot.QueueRemainingCapacity": "no queue",
    "snapshot.MaxQueueSizeInBytes": "no queue",
    "snapshot.CurrentQueueSizeInBytes": "no queue",
    "streaming.NumberOfEventsFiltered": "not known: the server applies the filters",
}
"""Attributes of Debezium that Strandline cannot know, or that mean nothing here, with the reason."""
