"""Write conflicts: a commit that lost a race wrote nothing, and can be repeated.

Only this module imports Delta's Python package.
"""

from __future__ import annotations

from typing import Final

from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    MetadataChangedException,
    ProtocolChangedException,
)
from pyspark.errors import AnalysisException
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from pipelines.errors import RetriableError


class OvertakenError(RetriableError):
    """Another process changed rows that this process had read and was about to change. Read them again, then retry."""


LOST_RACES: Final = (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentWriteException,
    MetadataChangedException,
    ProtocolChangedException,
    OvertakenError,
)
SEQUENCE_TAKEN: Final = ConcurrentTransactionException
"""Another writer committed the same application transaction at the same moment."""
_ADDED_BY_ANOTHER: Final = (
    "FIELD_ALREADY_EXISTS",
    "FIELDS_ALREADY_EXISTS",
    "DELTA_DUPLICATE_COLUMNS_FOUND.ADDING_COLUMNS",
)
"""Error conditions of ADD COLUMNS if another writer has just added the column."""
_ATTEMPTS = 5


def know_remote_conflicts() -> None:
    """Register Delta's exception classes for Spark Connect. Without them a conflict has no class of its own."""
    import delta.connect.exceptions  # noqa: F401  # why: the import registers them; it needs grpc


def retrying() -> Retrying:
    """Return retries for a commit: ``for attempt in retrying(): with attempt: …``. The last failure is raised."""
    return Retrying(
        retry=retry_if_exception(_lost_a_race),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_random_exponential(max=5),
        reraise=True,
    )


def _lost_a_race(error: BaseException) -> bool:
    return isinstance(error, LOST_RACES) or (
        isinstance(error, AnalysisException) and error.getCondition() in _ADDED_BY_ANOTHER
    )
