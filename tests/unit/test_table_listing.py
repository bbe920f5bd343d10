"""Removal of a table's folder that ends midway."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from strandline.io.tables.table_listing import remove_folder


def test_the_log_of_a_table_goes_last_so_that_an_interrupted_removal_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "orders"
    for name in ("_delta_log", "_change_data"):
        (table / name).mkdir(parents=True)
        (table / name / "file").touch()
    (table / "part-0.parquet").touch()
    rmtree = shutil.rmtree

    def killed(path: Path | str, *arguments: Any) -> None:
        if Path(path) == table:
            raise InterruptedError
        rmtree(path, *arguments)

    monkeypatch.setattr(shutil, "rmtree", killed)
    spark: Any = None  # it removes a URI, and no local folder
    with pytest.raises(InterruptedError):
        remove_folder(spark, str(table))
    assert [path.name for path in table.rglob("*")] == ["_delta_log", "file"]
    monkeypatch.undo()
    remove_folder(spark, str(table))
    assert not table.exists()
