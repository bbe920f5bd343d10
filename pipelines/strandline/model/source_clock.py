"""Cluster time against this machine's clock. Pure.

MongoDB's cluster time never goes back. If the clock of one member jumps ahead, the cluster time jumps with it, and
stands there until the clocks have caught up.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

_TOLERATED_SECONDS: Final = 60
"""Difference of clocks that is no jump."""
_UNITS: Final = ((86_400, "days"), (3_600, "hours"), (1, "seconds"))


def clock_jump(cluster_seconds: int, now: float) -> str | None:
    """Describe a cluster time that is ahead of this machine's clock. None: it is not.

    Args:
        cluster_seconds: Newest cluster time, in seconds since the epoch (UTC).
        now: This machine's time, in the same unit.
    """
    lead = cluster_seconds - int(now)
    if lead <= _TOLERATED_SECONDS:
        return None
    at, unit = datetime.fromtimestamp(cluster_seconds, UTC), next(unit for unit in _UNITS if lead >= unit[0])
    return (
        f"the source's time is {at:%Y-%m-%dT%H:%M:%SZ}, {lead / unit[0]:,.1f} {unit[1]} ahead of this machine's clock"
    )
