"""The position: a string that sorts in stream order. It orders and deduplicates all rows.

    <16 hex digits: cluster time>:<token _data>     a streamed event
    <16 hex digits: cluster time>:~                 a snapshot READ at that cluster time ("~" sorts after every token)

So a READ at cluster time L sorts after every event up to L, which it contains, and before every later event. The larger
position wins, in any order of arrival.

Source: token strings sort in stream order (mongodb DOCS-11616); the token stays opaque otherwise.
"""

from __future__ import annotations

SNAPSHOT_SUFFIX = "~"


def cluster_time_hex(seconds: int, increment: int) -> str:
    """Return sixteen hex digits that sort like the pair (seconds, increment)."""
    return f"{seconds:08x}{increment:08x}"


def streamed_position(seconds: int, increment: int, token_data: str) -> str:
    """Return the position of a change event, from its ``clusterTime`` and the ``_data`` of its resume token."""
    return f"{seconds:08x}{increment:08x}:{token_data}"


BEFORE_ALL = cluster_time_hex(0, 0) + ":"
"""Position before all others. Start of a history version whose start is unknown."""


def snapshot_position(seconds: int, increment: int) -> str:
    """Return the position of every READ of a chunk that was read at this cluster time."""
    return f"{seconds:08x}{increment:08x}:{SNAPSHOT_SUFFIX}"


def cluster_time_of(position: str) -> tuple[int, int]:
    """Return seconds since the epoch (UTC) and increment of a position, or of its first sixteen digits."""
    return int(position[:8], 16), int(position[8:16], 16)


def position_before(position: str, by_seconds: int) -> str:
    """Return the lower bound of all positions at most *by_seconds* seconds older than *position*.

    Every position with an older cluster time sorts before the bound.
    """
    seconds, increment = cluster_time_of(position)
    return cluster_time_hex(max(0, seconds - by_seconds), increment) + ":"


def cluster_seconds(position: str) -> int:
    """Return a position's cluster time, in seconds since the epoch (UTC)."""
    return cluster_time_of(position)[0]
