"""Commits that lost a race against another one on the same table: nothing of theirs was written, and calling again is safe.

The only importer of Delta's Python package.
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
    """Another process has changed what this one has read and was about to change. What is read anew is up to date."""


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
"""Somebody else committed the same application transaction at the same moment."""
_ADDED_BY_ANOTHER: Final = (
    "FIELD_ALREADY_EXISTS",
    "FIELDS_ALREADY_EXISTS",
    "DELTA_DUPLICATE_COLUMNS_FOUND.ADDING_COLUMNS",
)
"""What one hears who adds a column that somebody else has just added."""
_ATTEMPTS = 5


def know_remote_conflicts() -> None:
    """In a Spark Connect session a conflict has its own class only after this."""
    import delta.connect.exceptions  # noqa: F401  # why: the import is what tells Spark of them; it needs grpc


def retrying() -> Retrying:
    """Attempts of a commit that is planned anew each time: ``for attempt in retrying(): with attempt: …``; the last failure is raised."""
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
