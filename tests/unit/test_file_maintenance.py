"""Files of bronze that cannot be maintained: one line for the user."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.errors import RetriableError
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.io.tables.file_maintenance import DeltaRsFiles
from strandline.model.tables import Lake, TableName

BRONZE = TableName("bronze", "test")


@pytest.mark.parametrize("step", [DeltaRsFiles.count, DeltaRsFiles.compact, DeltaRsFiles.vacuum])
def test_a_damaged_log_is_told_in_one_line(tmp_path: Path, step: Callable[[DeltaRsFiles], object]) -> None:
    files = DeltaRsFiles(DeltaRsTables(Lake(str(tmp_path))), BRONZE)
    files.tables.create_table(BRONZE, "batch BIGINT, position STRING")
    step(files)
    log = tmp_path / "bronze" / "test" / "_delta_log"
    (log / f"{0:020}.json").write_text('{"metaData": \n')
    with pytest.raises(RetriableError, match=r"^bronze\.test cannot be read or written .* → check the lake") as failed:
        step(files)
    assert "\n" not in str(failed.value)
