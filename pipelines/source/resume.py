"""Where a stream starts: one pure function, in order of precedence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bson.timestamp import Timestamp

from pipelines.model.resume_token import ResumeToken
from pipelines.source.errors import Phase


@dataclass(frozen=True)
class ResumePoint:
    """A start that MongoDB understands: a token, or a cluster time, or (neither) the present."""

    token: str | None = None
    """The whole token document as Extended JSON."""
    cluster_time: tuple[int, int] | None = None
    """Seconds and increment; the event at that time is delivered."""
    last_event: str | None = None
    """Cluster time in hex of an event before the token, which the source must still have; None: none is known."""

    @property
    def watch_options(self) -> dict[str, Any]:
        """Arguments of ``watch``. Always ``startAfter``, never ``resumeAfter``: it survives an ``invalidate``.

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
        """What a stream does that is opened here: only a token can be refused as one."""
        return "opening" if self.token is None else "resuming"


def resume_point(
    *,
    explicit: ResumePoint | None = None,
    committed_token: str | None = None,
    last_event: str | None = None,
    committed_cluster_time: tuple[int, int] | None = None,
    configured: tuple[int, int] | None = None,
) -> ResumePoint:
    """Explicit command-line start > bronze token > bronze cluster time > configured start > now."""
    if explicit is not None:
        return explicit
    if committed_token is not None:
        return ResumePoint(token=committed_token, last_event=last_event)
    if committed_cluster_time is not None:
        return ResumePoint(cluster_time=committed_cluster_time)
    if configured is not None:
        return ResumePoint(cluster_time=configured)
    return ResumePoint()
