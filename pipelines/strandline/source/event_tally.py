"""Counts of the operations and transactions of a batch. Pure: bytes in, numbers out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from strandline.model.operation_types import KNOWN_OPERATIONS
from strandline.source.batch_builder import transaction_of

_NAME: Final = b"\x02operationType\0"
_OPERATIONS: Final[Mapping[bytes, str]] = {
    b"insert": "create",
    b"update": "update",
    b"replace": "update",
    b"delete": "delete",
}
_TRANSACTION: Final = b"\x12txnNumber\0"
_KNOWN_WORDS: Final = frozenset(name.encode() for name in KNOWN_OPERATIONS)
_LONGEST_TYPE: Final = 100


@dataclass(frozen=True)
class Tally:
    """Counts of one batch."""

    changes: Mapping[str, int]
    """Events by operation: create, update, delete. Other events are not counted."""
    unknown: Mapping[str, int]
    """Events of operation types that this release does not know, by type."""
    transactions: tuple[bytes, ...]
    """Transactions, in the order of the stream (session and number, as `transaction_of`)."""


def tally(events: Sequence[bytes]) -> Tally:
    """Return the counts of *events*.

    A search for bytes, 0.3 µs for an event: the operation comes right after the token, before any document.
    """
    changes, unknown = Counter[str](), Counter[str]()
    transactions: dict[bytes, None] = {}
    for event in events:
        value = event.find(_NAME) + len(_NAME) + 4
        word = event[value : event.find(b"\0", value)]
        operation = _OPERATIONS.get(word)
        if operation is not None:
            changes[operation] += 1
        elif word not in _KNOWN_WORDS and _NAME in event:
            unknown[word[:_LONGEST_TYPE].decode("utf-8", "replace")] += 1
        if _TRANSACTION in event and (transaction := transaction_of(event)) is not None:
            transactions[transaction] = None
    return Tally(changes, unknown, tuple(transactions))
