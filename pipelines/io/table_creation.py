"""Making a table that others may be making at the same moment, or that somebody began and did not end."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from pyspark.errors import AnalysisException
from tenacity import Retrying, retry_if_exception, stop_after_attempt, stop_after_delay, stop_all, wait_fixed

from pipelines.errors import ConfigurationError
from pipelines.io.conflicts import LOST_RACES

# What one hears who creates a table at the moment in which somebody else does: a conflict, or a folder whose first commit is still missing
# (when it is looked at, and when it is loaded). Rivals must want the same properties: Delta refuses a lost race whose properties differ.
_FIRST_COMMIT_MISSING = ("DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION", "DELTA_TABLE_NOT_FOUND")
_CREATION_ENDS = stop_all(
    stop_after_delay(10), stop_after_attempt(5)
)  # both: a cold JVM's first attempt alone can take longer


class _NotThereYet(Exception):
    """To IF NOT EXISTS whatever fills the folder is a table, such as the beginning of somebody else's first commit."""


def create_beside_rivals(create: Callable[[], object], *, is_there: Callable[[], bool], path: str) -> None:
    """I/O: calls *create* until there is a table, its own or a rival's.

    Args:
        create: ``CREATE TABLE IF NOT EXISTS``.
        is_there: Whether there is a table; asked after *create* has returned.
        path: Where the table is. Of a folder of this machine what a creation left that was cut off is removed.

    Raises:
        ConfigurationError: There is something else.
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
        if _removed_half_creation(Path(path)):
            create()
            return
        raise ConfigurationError(
            f"Spark finds files in {path}, and no Delta table",
            next_step="choose another lake.root; strandline doctor shows where this lake is",
        ) from error


def _removed_half_creation(folder: Path) -> bool:
    """Whether *folder* held nothing but a log without a commit, as a process that was killed leaves it; it is gone then."""
    if not folder.is_dir() or [entry.name for entry in folder.iterdir()] != ["_delta_log"]:
        return False
    if any(file.suffix == ".json" for file in (folder / "_delta_log").iterdir()):
        return False
    shutil.rmtree(folder)
    return True


def _lost_a_race(error: BaseException) -> bool:
    """Whether a table could not be created because somebody else was creating it: the next attempt finds it."""
    if isinstance(error, (*LOST_RACES, _NotThereYet)):
        return True
    return isinstance(error, AnalysisException) and error.getCondition() in _FIRST_COMMIT_MISSING
