"""Lost races: a commit that another writer has overtaken wrote nothing, and can be repeated. Needs no PySpark."""

from __future__ import annotations

import sys
from typing import Final

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from strandline.errors import RetriableError

_ATTEMPTS: Final = 5


class OvertakenError(RetriableError):
    """Another process changed rows that this process had read and was about to change. Read them again, then retry."""


def is_of_spark(error: BaseException) -> bool:
    """Return True if Spark raised *error*. Without PySpark, it raised none."""
    if sys.modules.get("pyspark") is None:
        return False
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException)


def retrying() -> Retrying:
    """Return retries for a commit: ``for attempt in retrying(): with attempt: …``. The last failure is raised."""
    return Retrying(
        retry=retry_if_exception(lost_a_race),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_random_exponential(max=5),
        reraise=True,
    )


def lost_a_race(error: BaseException) -> bool:
    """Return True if a commit failed because of another writer's commit."""
    if isinstance(error, OvertakenError) or sys.modules.get("pyspark") is None:
        return isinstance(error, OvertakenError)
    from strandline.io.spark.conflicts import is_conflict  # imports PySpark, without which no error is one of Spark's

    return is_conflict(error)
