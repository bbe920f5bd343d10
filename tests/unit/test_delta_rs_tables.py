"""Tables through delta-rs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.model.table_schemas import CUTS
from strandline.model.tables import Lake


@pytest.mark.parametrize("first", ["append", "properties"])
def test_a_checkpoint_is_written_whichever_commit_is_due(tmp_path: Path, first: str) -> None:
    """A silver run appends a cut and stores its progress: every second commit is of the same kind."""
    tables = DeltaRsTables(Lake(root=str(tmp_path)))
    tables.create_table(CUTS, "cut BIGINT", properties={"delta.checkpointInterval": "4"})
    if first == "properties":
        tables.set_properties(CUTS, {"test.run": "first"})
    for number in range(6):
        tables.append_rows(CUTS, pa.table({"cut": pa.array([number], pa.int64())}))
        tables.set_properties(CUTS, {"test.run": str(number)})
    assert len(list((Path(tables.lake.path(CUTS)) / "_delta_log").glob("*.checkpoint.parquet"))) == 3
