"""Load of the source, and the rule that slows a snapshot. Pure: replies of the server in, reasons out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from strandline.source.replies import document_at, entries_at, value_at

_FREE_TICKETS: Final = 0.1
"""Share of a member's tickets. With fewer free ones the source is loaded."""
_LAG_SECONDS: Final = 15.0
"""More than the 10 s by which an idle primary's periodic no-op is ahead of a secondary for a moment."""
_PRIMARY: Final = 1
_SECONDARY: Final = 2


@dataclass(frozen=True)
class Tickets:
    """Operations that a member executes at the same time: how many more it would begin now, and how many at most."""

    kind: Literal["read", "write"]
    free: int
    total: int
    waiting: int | None = None
    """Operations that wait for a ticket. None: the server does not tell.

    Since 7.0 a server adjusts its tickets, and few free ones are normal.
    """

    @property
    def are_scarce(self) -> bool:
        """True if the member has as many operations as it can execute."""
        return bool(self.total and self.free <= self.total * _FREE_TICKETS and self.waiting != 0)


@dataclass(frozen=True)
class SourceLoad:
    """Load of the source at one moment. What was not asked, or not answered, is no load."""

    tickets: tuple[Tickets, ...] = ()
    lag_seconds: float | None = None
    """Replication lag of the slowest secondary. Delayed members do not count. None: unknown."""
    flow_control: bool = False
    """True: the primary holds writes back, because the majority lags."""
    overload: bool = False
    """True: the source refused a question about its load, because it has too much to do."""

    @staticmethod
    def of(
        statuses: Sequence[Mapping[str, Any]],
        replica_set: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        *,
        overload: bool = False,
    ) -> SourceLoad:
        """Return the load that the replies tell. A field that is missing or has another type tells nothing.

        Args:
            statuses: Replies of ``serverStatus``.
            replica_set: Reply of ``replSetGetStatus``. None: not known.
            config: Reply of ``replSetGetConfig``, which names the delayed members. None: the lag is not known.
            overload: True if a question was refused because of an overload.
        """
        return SourceLoad(
            tuple(tickets for status in statuses for tickets in _tickets(status)),
            None if replica_set is None or config is None else _lag_seconds(replica_set, config),
            any(value_at(status, bool, "flowControl", "isLagged") for status in statuses),
            overload,
        )


def reasons_to_slow(load: SourceLoad) -> dict[str, str]:
    """Return the reasons to slow a snapshot down, each as text. Empty: read at full speed.

    The kinds of reasons are ``tickets``, ``replication_lag``, ``flow_control`` and ``overload``.
    """
    reasons: dict[str, str] = {}
    scarce = [tickets for tickets in load.tickets if tickets.are_scarce]
    if scarce:
        reasons["tickets"] = " and ".join(
            f"{tickets.free} of {tickets.total} {tickets.kind} tickets are free" for tickets in scarce
        )
    if load.lag_seconds is not None and load.lag_seconds > _LAG_SECONDS:
        reasons["replication_lag"] = f"a secondary is {load.lag_seconds:.0f} s behind the primary"
    if load.flow_control:
        reasons["flow_control"] = "flow control holds writes back"
    if load.overload:
        reasons["overload"] = "the server refuses commands, because it has too much to do"
    return reasons


def _tickets(status: Mapping[str, Any]) -> list[Tickets]:
    """Return the tickets of one member. MongoDB 8.0 has them in another place; a mongos has none."""
    places = [("queues", "execution"), ("wiredTiger", "concurrentTransactions")]
    place = next((path for path in places if document_at(status, *path)), places[-1])
    kinds: tuple[Literal["read", "write"], ...] = ("read", "write")
    return [
        Tickets(kind, free, total, value_at(status, int, *place, kind, "normalPriority", "queueLength"))
        for kind in kinds
        if (free := value_at(status, int, *place, kind, "available")) is not None
        and (total := value_at(status, int, *place, kind, "totalTickets")) is not None
    ]


def _lag_seconds(replica_set: Mapping[str, Any], config: Mapping[str, Any]) -> float | None:
    """Return the lag of the slowest secondary. None: there is no primary, or no secondary without a delay.

    An arbiter has no time. A member whose entry lacks a field is left out.
    """
    delayed = {
        value_at(member, str, "host")
        for member in entries_at(config, "config", "members")
        if value_at(member, int, "secondaryDelaySecs") or value_at(member, int, "slaveDelay")  # MongoDB 4.4
    }
    states = [
        (value_at(member, int, "state"), written_at.replace(tzinfo=UTC))
        for member in entries_at(replica_set, "members")
        if (written_at := value_at(member, datetime, "optimeDate")) is not None
        and (name := value_at(member, str, "name")) is not None
        and name not in delayed
    ]
    newest = [written_at for state, written_at in states if state == _PRIMARY]
    lags = [(at - written_at).total_seconds() for at in newest for state, written_at in states if state == _SECONDARY]
    return max(lags, default=None)
