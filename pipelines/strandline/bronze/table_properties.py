"""Table properties of a new bronze table."""

from __future__ import annotations

from typing import Final

from strandline.io.file_statistics import STATISTICS
from strandline.model.table_schemas import SKIPPED_BY

PROPERTIES: Final = {
    "delta.appendOnly": "true",
    "delta.enableChangeDataFeed": "true",
    STATISTICS: ",".join(SKIPPED_BY),
    "delta.checkpointInterval": "100",
}
