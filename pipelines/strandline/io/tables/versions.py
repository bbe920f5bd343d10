"""Reads of one version of a table. Delta shows old versions for a limited time only."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from strandline.io.tables.table_store import VersionGone

R = TypeVar("R")

_GONE: Final = (
    "DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION",
    "DELTA_VERSION_NOT_FOUND",
)
_log = logging.getLogger("strandline.tables")


@contextmanager
def reading_version(what: str) -> Iterator[None]:
    """Raise VersionGone if the block analyses a query of a version that Delta no longer shows.

    Args:
        what: The table in words, with the version if it is known, for the error.
    """
    from pyspark.errors import AnalysisException  # not above: `with_fresh_versions` works without PySpark

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
    """Call *work*. Call it once more if a version that it chose is gone.

    The newest version of an idle table may be older than Delta's time travel allows. If another process commits while
    *work* reads that version, Delta refuses it. The second call then chooses a young version.
    """
    try:
        return work()
    except VersionGone as gone:
        _log.info("%s; retrying with the newest version", gone.message)
        return work()
