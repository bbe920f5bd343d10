"""Start position of a change stream, chosen by one pure function in order of precedence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bson.timestamp import Timestamp

from strandline.model.resume_token import ResumeToken
from strandline.source.errors import Phase


@dataclass(frozen=True)
class ResumePoint:
    """Start of a change stream: a resume token, a cluster time, or (neither) now."""

    token: str | None = None
    """Token document as Extended JSON."""
    cluster_time: tuple[int, int] | None = None
    """Seconds and increment. An event at exactly this time is delivered."""
    last_event: str | None = None
    """Cluster time in hex of the last event before the token. The source must still have it. None: unknown."""

    @property
    def watch_options(self) -> dict[str, Any]:
        """Return the arguments of ``watch``.

        A token is passed as ``startAfter``, which, unlike ``resumeAfter``, survives an invalidate.

        Raises:
            ResumePointLost: The token cannot be read.
        """
        if self.token is not None:
            return {"start_after": ResumeToken.parse(self.token).document}
        if self.cluster_time is not None:
            return {"start_at_operation_time": Timestamp(*self.cluster_time)}
        return {}

    @property
    def phase(self) -> Phase:
        """Return the phase for `classify` of a stream that is opened here."""
        return "opening" if self.token is None else "resuming"


def resume_point(
    *,
    explicit: ResumePoint | None = None,
    committed_token: str | None = None,
    last_event: str | None = None,
    committed_cluster_time: tuple[int, int] | None = None,
    configured: tuple[int, int] | None = None,
) -> ResumePoint:
    """Return the start by precedence: command line, token in bronze, cluster time in bronze, configuration, now."""
    if explicit is not None:
        return explicit
    if committed_token is not None:
        return ResumePoint(token=committed_token, last_event=last_event)
    if committed_cluster_time is not None:
        return ResumePoint(cluster_time=committed_cluster_time)
    if configured is not None:
        return ResumePoint(cluster_time=configured)
    return ResumePoint()


def not_before(token: str, floor: str | None) -> str:
    """Return *token*, or *floor* if the stream had reached that before. Both are Extended JSON.

    A resumed stream of a mongos 9.0.0 to 9.0.2 may name a place before its start. Source: SERVER-134795.
    """
    is_back = floor is not None and ResumeToken.parse(token).data < ResumeToken.parse(floor).data
    return floor if floor is not None and is_back else token
