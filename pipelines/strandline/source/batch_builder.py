"""A batch that is being filled. It closes at its limits, but not inside a transaction. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from strandline.model.bson import raw as rb

_MAX_GROWTH: Final = 4
"""Multiple of *max_bytes* at which a batch closes inside a transaction, so that memory stays bounded."""


class BatchBuilder:
    """Events of one batch.

    Args:
        carried_over: Events that were read while the previous batch was filled, but belong to this batch.
        max_events: Number of events at which the batch is full.
        max_bytes: Size in bytes at which the batch is full.
    """

    def __init__(self, carried_over: Sequence[bytes], *, max_events: int, max_bytes: int) -> None:
        self.events = list(carried_over)
        self.next_events: tuple[bytes, ...] = ()
        """Events that were read already, but belong to the next batch."""
        self._size = sum(map(len, carried_over))
        self._max_events, self._max_bytes = max_events, max_bytes
        self._last_transaction: bytes | None = None  # set once the batch waits for its end
        self.awaits_better_token = False
        """The batch should not close after its last event. Set by the reader."""

    def can_close(self, *, due: bool) -> bool:
        """Return True if the batch can be closed now.

        A batch that is full or due waits for the end of its last transaction and for a better token, up to a bound in
        bytes.

        Args:
            due: Close the batch although it is not full: the reader has waited for it long enough.
        """
        if not due and len(self.events) < self._max_events and self._size < self._max_bytes:
            return False
        self._last_transaction = self._transaction
        waits = self._last_transaction is not None or self.awaits_better_token
        return not waits or self._size >= self._max_bytes * _MAX_GROWTH

    @property
    def awaits_transaction_end(self) -> bool:
        """Return True if the batch stays open only until its last transaction ends."""
        return self._last_transaction is not None

    def add(self, event: bytes) -> bool:
        """Add *event*. Return False, and keep it in `next_events`, if it belongs to the next batch."""
        if self._last_transaction is not None and transaction_of(event) != self._last_transaction:
            self.next_events = (event,)
            return False
        self.events.append(event)
        self._size += len(event)
        return True

    def ends_outside_transaction(self, *, caught_up: bool) -> bool:
        """Return True if it is certain that no transaction continues after the batch.

        Args:
            caught_up: The source has no more events, and sends all events of a transaction together.
        """
        return caught_up or bool(self.next_events) or self._transaction is None

    @property
    def _transaction(self) -> bytes | None:
        return transaction_of(self.events[-1]) if self.events else None


def transaction_of(event: bytes) -> bytes | None:
    """Return the transaction of an event (session and number, as bytes); None outside of a transaction."""
    session, number = rb.field(event, b"lsid"), rb.field(event, b"txnNumber")
    return None if session is None or number is None else event[session[1] : session[2]] + event[number[1] : number[2]]
