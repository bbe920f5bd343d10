"""Column names that Delta and Spark use themselves in commands that change rows. In any case: Spark ignores it.

Such a column stops every later MERGE, UPDATE or DELETE of its table, or loses its values.

Source: delta-io/delta v4.4.0, MergeIntoCommandBase.scala, UpdateCommand.scala, DMLWithDeletionVectorsHelper.scala,
CDCReader.scala, DeltaParquetFileFormat.scala; apache/spark, FileFormat.scala, ParquetFileFormat.scala. The names are
the same for Spark 4.0, 4.1 and 4.2. `tests/spark/test_delta_names.py` tries each.
"""

from __future__ import annotations

from typing import Final

CHANGE_FEED: Final = ("_change_type", "_commit_version", "_commit_timestamp")
"""Columns of Delta's change data feed. Delta refuses a table column with one of these names."""

ROW_COMMANDS: Final = (
    *("_row_id_", "_file_name_", "_target_row_present_", "_source_row_present_", "_row_dropped_", "__condition__"),
    *("__is_cdc", "__delta_internal_is_row_deleted", "_tmp_metadata_row_index"),
)
"""Names of MERGE, UPDATE, DELETE, the reader, and the writer of the change data feed."""

DELETION_VECTORS: Final = (
    *("filepath", "dvfilepath", "deletionvectorid", "rowindexcol", "_metadata", "__delta_internal_row_index"),
)
"""Names of the same commands in a table with deletion vectors, which a user may switch on at any time."""

DELTA_NAMES: Final = frozenset(CHANGE_FEED + ROW_COMMANDS + DELETION_VECTORS)
"""Names that are no column of a silver or history table, as `fold_case` shows them."""
