"""A change of rows in this process: what it does if other commits came first."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from strandline.io.changeable_table import ChangeableTable, TableChange
from strandline.io.local_folder import LocalFolder

_ROWS = pa.table({"_key": ["a", "b"], "n": [1, 2]})


@pytest.mark.parametrize("cleaned", [False, True], ids=["their log is there", "log clean-up has removed it"])
def test_a_change_behind_other_commits_is_not_made(tmp_path: Path, cleaned: bool) -> None:
    write_deltalake(str(tmp_path), _ROWS)
    opened = ChangeableTable.open(LocalFolder(tmp_path), key="_key")
    assert opened is not None
    for _ in range(3):
        write_deltalake(str(tmp_path), _ROWS, mode="append")
    if cleaned:
        DeltaTable(str(tmp_path)).create_checkpoint()
        for version in range(3):
            (tmp_path / "_delta_log" / f"{version:020}.json").unlink()
    before = sorted(tmp_path.rglob("*"))
    assert not opened.commit(TableChange(opened.files, rows=_ROWS))
    assert sorted(tmp_path.rglob("*")) == before, "a commit below a checkpoint would be read by nobody"
    assert DeltaTable(str(tmp_path)).to_pyarrow_table().num_rows == 8
