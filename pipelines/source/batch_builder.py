"""A batch while it is filled: it is full by its limits, but ends inside no transaction. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pipelines.model.bson import raw as rb

_LARGEST_TRANSACTION: Final = 4
"""A batch may grow to so many times its bytes to hold the end of a transaction: memory stays bounded."""


class BatchBuilder:
    """Events of one batch.

    Args:
        begun: Events of the batch that the one before it has read already.
        max_events, max_bytes: When it is full.
    """

    def __init__(self, begun: Sequence[bytes], *, max_events: int, max_bytes: int) -> None:
        self.events = list(begun)
        self.rest: tuple[bytes, ...] = ()
        """What was read beyond the end: events of the next batch."""
        self._size = sum(map(len, begun))
        self._max_events, self._max_bytes = max_events, max_bytes
        self._ending_in: bytes | None = None

    def may_end(self, *, due: bool) -> bool:
        """Whether the batch is complete.

        Args:
            due: Somebody waits for it, and has waited long enough.
        """
        if not due and len(self.events) < self._max_events and self._size < self._max_bytes:
            return False
        self._ending_in = self._transaction
        return self._ending_in is None or self._size >= self._max_bytes * _LARGEST_TRANSACTION

    @property
    def is_ending(self) -> bool:
        """Whether it waits for nothing but the end of a transaction."""
        return self._ending_in is not None

    def take(self, event: bytes) -> bool:
        """Add *event*; False where it belongs to the next batch."""
        if self._ending_in is not None and transaction_of(event) != self._ending_in:
            self.rest = (event,)
            return False
        self.events.append(event)
        self._size += len(event)
        return True

    def is_whole(self, *, caught_up: bool) -> bool:
        """Whether it is certain that no transaction goes on behind the batch.

        Args:
            caught_up: The source had nothing more to say, and says all events of a transaction at once.
        """
        return caught_up or bool(self.rest) or self._transaction is None

    @property
    def _transaction(self) -> bytes | None:
        return transaction_of(self.events[-1]) if self.events else None


def transaction_of(event: bytes) -> bytes | None:
    """Which transaction an event is of: session and number, as bytes; None outside of any."""
    session, number = rb.field(event, b"lsid"), rb.field(event, b"txnNumber")
    return None if session is None or number is None else event[session[1] : session[2]] + event[number[1] : number[2]]
