"""Delta table properties that a user may choose. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

_RETENTION: Final = "`strandline maintain` sets it; use maintenance.retention_hours and log_retention_hours"
_STATISTICS: Final = "Strandline sets the columns with statistics; use silver.layout"
_FEATURE: Final = "it changes the features that readers and writers must know; use silver.compatibility"
_FOLDER: Final = "Strandline reads the commits and files of a table in the table's folder; remove it"
_REFUSED: Final = {
    "strandline.": "Strandline stores the state of the table there; remove it",
    "delta.appendOnly": "a MERGE changes rows; remove it",
    "delta.columnMapping.": "field names decide it; use silver.field_name_adjustment_mode",
    "delta.coordinatedCommits.": _FOLDER,
    "delta.dataSkippingNumIndexedCols": _STATISTICS,
    "delta.dataSkippingStatsColumns": _STATISTICS,
    "delta.deletedFileRetentionDuration": _RETENTION,
    "delta.enableChangeData": "gold and readers of changes need the change feed; remove it",
    "delta.enableExpiredLogCleanup": _RETENTION,
    "delta.enableFullRetentionRollback": _RETENTION,
    "delta.logRetentionDuration": _RETENTION,
    "delta.redirect": _FOLDER,
    "delta.universalFormat.": "Delta has no package for it (strandline explain readers); remove it",
    **dict.fromkeys(
        (
            "delta.checkpointPolicy",
            "delta.enable",
            "delta.feature.",
            "delta.inCommitTimestamp",
            "delta.minReaderVersion",
            "delta.minWriterVersion",
            "delta.requireCheckpointProtection",
            "delta.rowTracking",
        ),
        _FEATURE,
    ),
}
"""Beginning of the name of a property that Strandline depends on; the reason, and what to do. The first one counts."""


def property_problems(names: Iterable[str]) -> Iterator[str]:
    """Yield one line for each property that may not be chosen. Delta ignores upper and lower case in names."""
    for name in names:
        folded = name.casefold()
        reason = next(
            (why for start, why in _REFUSED.items() if folded.startswith(start.casefold())),
            None,
        )
        if reason is not None:
            yield f"{name} cannot be chosen: {reason}"
        elif not folded.startswith("delta."):
            yield f"{name} cannot be chosen: it is no property of Delta; set it by hand, and Strandline keeps it"
