"""One batch of change events, as the reader delivers it to the writer."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.model.bson.raw import field, timestamp_at
from strandline.model.position import cluster_time_hex
from strandline.source.client import token_data
from strandline.source.oversize_events import OversizeEvent


@dataclass(frozen=True)
class ChangeBatch:
    """Events in stream order, with field rules applied, and the resume token after them.

    Without events only the position moved.
    """

    events: tuple[bytes, ...]
    resume_token: str
    """Token document as Extended JSON: the last event's token, or the server's post-batch token."""
    oversize_events: tuple[OversizeEvent, ...] = ()
    """Events of this batch whose large documents were left out."""
    ends_outside_transaction: bool = False
    """True if no transaction continues after this batch. False: unknown."""
    drained_at: float | None = None
    """Unix time at which the stream had no event after this batch. None: it may have had more."""

    @property
    def first_event(self) -> str | None:
        """Return the cluster time of the first event in hex; None without events."""
        return cluster_time(self.events[0]) if self.events else None

    @property
    def last_event(self) -> str | None:
        """Return the cluster time of the last event in hex; None without events."""
        return cluster_time(self.events[-1]) if self.events else None

    @property
    def token_data(self) -> str:
        """Return ``_data`` of the resume token."""
        return token_data(self.resume_token)

    def reaches(self, target: str) -> bool:
        """Return True if all events up to the token data *target* are in this batch or before it.

        A target is usually the token of a cluster time. It sorts before the events of that time. So a batch that ends
        exactly at the target counts only if it has events, or if the server had no more.
        """
        if self.token_data == target:
            return bool(self.events) or self.drained_at is not None
        return self.token_data > target


def cluster_time(event: bytes) -> str | None:
    """Return the cluster time of *event* in hex. None: it has none."""
    span = field(event, b"clusterTime")
    return None if span is None else cluster_time_hex(*timestamp_at(event, span[1]))
