"""A shadow table that this process has filled: compared and swapped in without Spark."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from strandline.io.delta_log.delta_rs_query import result
from strandline.io.delta_log.mergeable_table import MergeableTable
from strandline.io.spark.races import OvertakenError
from strandline.io.tables.delta_rs_tables import DeltaRsTables, table_errors
from strandline.io.tables.table_swap import swap_files
from strandline.jobs.silver.direct_batch import DirectBatch
from strandline.model.tables import TableName
from strandline.silver.compatibility import without_features
from strandline.silver.rebuild_diff import Differences, differences_sql
from strandline.silver.silver_metadata import SilverMetadata

_MOST_CHANGES: Final = 5_000_000
"""For each key, a comparison holds some 200 bytes."""


@dataclass(frozen=True)
class DirectShadow:
    """Implements `Shadow`.

    Args:
        batch: The changes of which the shadow was made.
    """

    tables: DeltaRsTables
    table: TableName
    shadow: TableName
    batch: DirectBatch

    def is_ready(self) -> bool:
        """I/O: returns True if delta-rs writes both tables, and can compare them."""
        both = (MergeableTable.open(self.tables.folder(name), key="_key") for name in (self.table, self.shadow))
        is_plain = all(one is not None for one in both)
        return is_plain and len(self._keys) <= _MOST_CHANGES and not self._keys.null_count

    @cached_property
    def _keys(self) -> pa.ChunkedArray:
        return self.batch.keys()

    def lacking_keys(self) -> int:
        with table_errors(self.shadow):
            shadow = MergeableTable.open(self.tables.folder(self.shadow), key="_key")
            held = [] if shadow is None else [keys for _, keys in shadow.find_keys(self._keys)]
        return len(pc.unique(self._keys)) - len(pc.unique(pa.chunked_array(held, pa.string())))

    def leave_out_refused(self, *, records: bool) -> None:
        """Do nothing: a table with constraints is not `is_ready`."""

    def differences(self) -> Differences:
        sql = differences_sql(SilverMetadata(self.tables, self.table).purge_watermark())
        with table_errors(self.table):
            present, rebuilt = (self.tables.folder(name).table() for name in (self.table, self.shadow))
            (row,) = result({"present_table": present, "rebuilt_table": rebuilt}, sql)
        return Differences(**row)

    def replace_table(self) -> None:
        properties = without_features(self.tables.properties(self.table)) | self.tables.properties(self.shadow)
        if not swap_files(self.tables, self.table, self.shadow, properties=properties):
            raise OvertakenError(
                f"another process has changed {self.table}, so nothing was replaced",
                next_step=f"strandline rebuild {self.table}",
            )
