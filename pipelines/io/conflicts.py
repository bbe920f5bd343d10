"""Commits that lost a race against another one on the same table: nothing of theirs was written, and calling again is safe."""

from __future__ import annotations

from typing import Final

from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentWriteException,
    MetadataChangedException,
)
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

LOST_RACES: Final = (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentWriteException,
    MetadataChangedException,
)
_ATTEMPTS = 5


def retrying() -> Retrying:
    """Attempts of a commit that is planned anew each time: ``for attempt in retrying(): with attempt: …``; the last failure is raised."""
    return Retrying(
        retry=retry_if_exception_type(LOST_RACES), stop=stop_after_attempt(_ATTEMPTS), wait=wait_random_exponential(max=5), reraise=True
    )
