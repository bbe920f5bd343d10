"""Table properties of a bronze table."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from strandline.io.delta_log.file_statistics import STATISTICS
from strandline.model.table_schemas import SKIPPED_BY
from strandline.model.tables import TableName

_log = logging.getLogger("strandline.capture")
PROPERTIES: Final = {
    "delta.appendOnly": "true",
    "delta.enableChangeDataFeed": "true",
    STATISTICS: ",".join(SKIPPED_BY),
    "delta.checkpointInterval": "100",
}
"""Properties of a new table."""
TRANSACTION_RETENTION: Final = "delta.setTransactionRetentionDuration"
"""Property that a user may set by hand: the time after which Delta forgets the number of a committed batch."""


def forgets_transactions(table: TableName, properties: Mapping[str, str]) -> str | None:
    """Return a sentence if Delta forgets which batches of bronze were committed. None: it does not. Pure."""
    retention = {name.casefold(): value for name, value in properties.items()}.get(TRANSACTION_RETENTION.casefold())
    if retention is None:
        return None
    return (
        f"{table} has {TRANSACTION_RETENTION} = {retention}: "
        "after that time Delta would let two captures commit one batch"
    )


def warn_of_forgotten_transactions(table: TableName, properties: Mapping[str, str]) -> None:
    """Log the sentence of `forgets_transactions`, if there is one."""
    if (problem := forgets_transactions(table, properties)) is not None:
        _log.warning("%s; remove the property", problem)
