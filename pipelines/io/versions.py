"""Reads of one version of a table, which Delta shows for a limited time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from pyspark.errors import AnalysisException

from pipelines.errors import RetriableError

R = TypeVar("R")

_GONE: Final = (
    "DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION",
    "DELTA_VERSION_NOT_FOUND",
)
_log = logging.getLogger("strandline.tables")


class VersionGone(RetriableError):
    """Delta no longer shows a version: it is not the newest one, and older than ``delta.deletedFileRetentionDuration`` (7 days) or than
    the table's log. Nothing was written; what reads the newest version succeeds."""


@contextmanager
def reading_version(what: str) -> Iterator[None]:
    """Raise VersionGone where the block analyses a query of a version that Delta no longer shows.

    Args:
        what: Names the table, and the version where it is known.
    """
    try:
        yield
    except AnalysisException as error:
        if error.getCondition() not in _GONE:
            raise
        raise VersionGone(
            f"{what} cannot be read: a newer version exists, and this one is older than Delta keeps old versions",
            next_step="run the same command again: it reads the newest version",
        ) from error


def with_fresh_versions(work: Callable[[], R]) -> R:
    """Call *work*, and call it once more where a version that it chose is gone.

    The newest version of a table may be old. If somebody commits to the table while *work* reads that version, Delta refuses the version.
    The version that the second call chooses is as young as that commit.
    """
    try:
        return work()
    except VersionGone as gone:
        _log.info("%s; it is done again with the newest version", gone.message)
        return work()
