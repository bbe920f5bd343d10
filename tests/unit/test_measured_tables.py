"""Sizes of tables, read from their logs."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable

from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.io.tables.measured_tables import MeasuredTables
from strandline.model.tables import Lake, TableName

TABLE = TableName("control", "t")


def test_a_size_follows_the_log_also_behind_a_checkpoint(tmp_path: Path) -> None:
    writer = DeltaRsTables(Lake(root=str(tmp_path)))
    writer.insert_rows(TABLE, "n BIGINT", [{"n": 1}], "n")
    size = MeasuredTables(writer.lake).size(TABLE)
    assert (size.rows, size.files, size.version, size.checkpoint) == (1, 1, 1, -1)
    assert size.changed_at is not None

    writer.insert_rows(TABLE, "n BIGINT", [{"n": 2}], "n")
    folder = Path(writer.lake.path(TABLE))
    DeltaTable(str(folder)).create_checkpoint()
    (folder / "_delta_log" / f"{0:020}.json").unlink()
    size = MeasuredTables(writer.lake).size(TABLE)
    assert (size.rows, size.files, size.version, size.checkpoint) == (2, 2, 2, 2)
