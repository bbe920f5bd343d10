"""Write conflicts of Spark's commits, by the classes and conditions of their errors.

Only this module imports Delta's Python package.
"""

from __future__ import annotations

import logging
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
from pyspark.errors import AnalysisException, PySparkException

from strandline.io.spark.races import OvertakenError

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
_CONFLICTS: Final = (
    "DELTA_CONCURRENT_APPEND",
    "DELTA_CONCURRENT_DELETE_DELETE",
    "DELTA_CONCURRENT_DELETE_READ",
    "DELTA_CONCURRENT_WRITE",
    "DELTA_METADATA_CHANGED",
    "DELTA_PROTOCOL_CHANGED",
)
"""Error conditions of `LOST_RACES`, for a session that does not know their classes."""
_log = logging.getLogger("strandline.tables")


def know_remote_conflicts() -> None:
    """Register Delta's exception classes for Spark Connect. Without them a conflict has no class of its own.

    Delta's Python package before 4.0 has none. Conflicts are then retried by their condition; a lost application
    transaction ends the process without an exit code of its own.
    """
    try:
        import delta.connect.exceptions  # noqa: F401  # why: the import registers them; it needs grpc
    except ImportError as error:
        _log.warning("Delta's package has no classes for Spark Connect's write conflicts (%s)", error)


def is_conflict(error: BaseException) -> bool:
    """Return True if a commit of Spark failed because of another writer's commit."""
    condition = (error.getCondition() if isinstance(error, PySparkException) else None) or ""
    added = isinstance(error, AnalysisException) and condition in _ADDED_BY_ANOTHER
    return isinstance(error, LOST_RACES) or added or condition.partition(".")[0] in _CONFLICTS
