"""Create a table while other processes may create it too, or after an interrupted creation."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from tenacity import Retrying, retry_if_exception, stop_after_attempt, stop_after_delay, stop_all, wait_fixed

from strandline.errors import ConfigurationError, one_line
from strandline.io.delta_log.table_folder import LOG
from strandline.io.spark.conflicts import LOST_RACES
from strandline.io.tables.table_listing import files_at, remove_folder

# Conditions of a creation that lost a race: the folder is there, and its first commit is still missing. All creators
# must pass the same properties: otherwise Delta refuses the loser.
_FIRST_COMMIT_MISSING = ("DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION", "DELTA_TABLE_NOT_FOUND")
_OTHERS = "{[^_]*,_[^d]*}"  # a pattern for every name except _delta_log
_CREATION_ENDS = stop_all(
    stop_after_delay(10), stop_after_attempt(5)
)  # both bounds: the first attempt of a cold JVM alone can take longer


class _NotThereYet(Exception):
    """IF NOT EXISTS took other content of the folder for a table, such as an unfinished first commit."""


def create_beside_rivals(
    spark: SparkSession, create: Callable[[], object], *, is_there: Callable[[], bool], name: str, folder: str | None
) -> None:
    """I/O: calls *create* until there is a table, created here or by another process.

    Args:
        create: ``CREATE TABLE IF NOT EXISTS``.
        is_there: Returns True if there is a table. Called after *create*.
        name: Name of the table, for an error.
        folder: Path or URI of the table. The rest of an interrupted creation is removed. None: a catalog chooses it.

    Raises:
        ConfigurationError: The folder contains something else.
    """
    try:
        for attempt in Retrying(
            retry=retry_if_exception(_lost_a_race), stop=_CREATION_ENDS, wait=wait_fixed(0.1), reraise=True
        ):
            with attempt:
                create()
                if not is_there():
                    raise _NotThereYet
    except (AnalysisException, _NotThereYet) as error:
        if isinstance(error, AnalysisException) and error.getCondition() not in (
            *_FIRST_COMMIT_MISSING,
            "DELTA_MISSING_DELTA_TABLE",
        ):
            raise
        if folder is not None and _removed_half_creation(spark, folder):
            create()
            return
        raise ConfigurationError(
            f"Spark finds files in {folder or f'the folder of {name}'}, and no Delta table",
            next_step="choose another lake.root or lake.schema; strandline doctor shows where this lake is",
        ) from error


def _removed_half_creation(spark: SparkSession, folder: str) -> bool:
    """Remove a *folder* with a log but no commit, as a killed process leaves it. Return True if it was removed.

    Raises:
        ConfigurationError: Spark's catalog does not remove it.
    """
    if files_at(spark, folder, LOG) != [] or files_at(spark, folder, _OTHERS) is not None:
        return False
    try:
        remove_folder(spark, folder)
    except PySparkException as error:  # each catalog has its own class for what it does not do
        raise ConfigurationError(
            f"a process ended while it created {folder}, and Spark does not remove the rest ({one_line(error)})",
            next_step="remove that folder, then repeat the command",
        ) from error
    return True


def _lost_a_race(error: BaseException) -> bool:
    """Return True if another process was creating the table. The next attempt will find it."""
    if isinstance(error, (*LOST_RACES, _NotThereYet)):
        return True
    return isinstance(error, AnalysisException) and error.getCondition() in _FIRST_COMMIT_MISSING
