"""The moment of a restore: parse ``--as-of``, and check that bronze reaches it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from strandline.bronze.offsets import Committed
from strandline.control.cuts import cuts
from strandline.errors import ConfigurationError
from strandline.jobs.lake_context import LakeContext
from strandline.jobs.offset_target import operation_time_in
from strandline.model.position import cluster_time_of
from strandline.model.resume_token import ResumeToken
from strandline.model.table_schemas import bronze_table
from strandline.model.timestamps import TIME_EXAMPLE, seconds_of

_WHOLE_SECOND: Final = 2**32 - 1
_MAX_CUTS: Final = 1_000_000
_LONGEST_NUMBER: Final = 10


def moment_of(ctx: LakeContext, as_of: str, last: Committed) -> tuple[int, int]:
    """Return the cluster time that *as_of* names: seconds since the epoch, and increment.

    I/O: reads ``control.cuts`` for a cut. The source is not asked.

    Args:
        as_of: ISO 8601 time, which stands for the end of its second; operation time, ``1764300000,3``; or number of a
            cut.
        last: The last committed offset of the source.

    Raises:
        ConfigurationError: *as_of* is none of these, there is no such cut, or bronze does not reach the moment.
    """
    text = as_of.strip()
    if (operation := operation_time_in(text)) is not None:
        at = operation
    elif text.isdecimal() and len(text) <= _LONGEST_NUMBER:
        at = _of_cut(ctx, int(text))
    elif (seconds := seconds_of(text)) is not None:
        at = (seconds, _WHOLE_SECOND)
    else:
        raise ConfigurationError(
            f"--as-of {as_of!r} is no time and no cut",
            next_step=f"{TIME_EXAMPLE}; or an operation time such as 1764300000,3; or a number of strandline cuts list",
        )
    reach = _reach(last)
    if reach is None or at > reach:
        until = "" if reach is None else f", only up to {reach[0]},{reach[1]} ({in_words(reach)})"
        raise ConfigurationError(
            f"bronze does not hold the source up to --as-of {as_of!r}{until}",
            next_step="strandline capture --once, or an earlier moment",
        )
    return at


def in_words(at: tuple[int, int]) -> str:
    """Return a cluster time as ISO 8601, UTC."""
    return datetime.fromtimestamp(at[0], UTC).isoformat()


def _of_cut(ctx: LakeContext, number: int) -> tuple[int, int]:
    bronze = ctx.tables.id(bronze_table(ctx.settings.source.name))
    own = [cut for cut in cuts(ctx.tables, limit=_MAX_CUTS) if cut.number == number and cut.bronze == bronze]
    newest = max((cut.position or "", cut.read_position or "") for cut in own) if own else ("", "")
    if not any(newest):
        raise ConfigurationError(f"there is no cut {number} of this source", next_step="strandline cuts list")
    return cluster_time_of(max(newest))


def _reach(last: Committed) -> tuple[int, int] | None:
    """Return the cluster time up to which bronze has every event. None: unknown, as after a reset."""
    if last.resume_token is None:
        return None
    data = ResumeToken.parse(last.resume_token).data
    return cluster_time_of(data[2:18])
