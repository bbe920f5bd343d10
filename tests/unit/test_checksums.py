"""Checksum files of Spark, after delta-rs has removed the files that they belong to."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from strandline.io.delta_log.checksums import left_over
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.io.tables.file_maintenance import DeltaRsFiles
from strandline.model.tables import Lake, TableName

_TABLE = TableName("bronze", "shop")
_A_DAY_AGO = time.time() - 24 * 3600


def version(number: int) -> str:
    return f"{number:020}"


def test_only_checksums_without_their_file_are_left_over() -> None:
    gone = {f"{version(1)}.crc", f".{version(1)}.crc.crc", f".{version(1)}.json.crc", ".part-1.parquet.crc"}
    kept = {
        *(f"{version(2)}.json", f".{version(2)}.json.crc", f"{version(2)}.crc", f".{version(2)}.crc.crc"),
        *(f"{version(9)}.crc", f".{version(9)}.crc.crc"),  # its commit may be on its way
        *("part-2.parquet", ".part-2.parquet.crc", "notes.crc"),
    }
    assert left_over(gone | kept, checkpoint=5) == gone


@pytest.mark.parametrize("age", ["old", "new"])
def test_vacuum_removes_the_checksums_of_files_and_commits_that_delta_rs_removed(tmp_path: Path, age: str) -> None:
    folder = tmp_path / "bronze" / "shop"
    for _ in range(3):
        write_deltalake(folder, pa.table({"n": [1]}), mode="append")
    DeltaTable(folder).create_checkpoint()
    (log := folder / "_delta_log").joinpath(f"{version(0)}.json").unlink()
    kept = [*folder.glob("*.parquet"), *log.glob("*.json")]
    checksums = [file.with_name(f".{file.name}.crc") for file in kept]
    orphans = [folder / ".part-gone.parquet.crc", log / f".{version(0)}.json.crc", log / f"{version(0)}.crc"]
    for file in (*checksums, *orphans):
        file.write_bytes(b"crc")
        if age == "old":
            os.utime(file, (_A_DAY_AGO, _A_DAY_AGO))
    DeltaRsFiles(DeltaRsTables(Lake(root=str(tmp_path))), _TABLE).vacuum()
    assert [file for file in (*kept, *checksums) if not file.exists()] == []
    assert [file.exists() for file in orphans] == [age == "new"] * 3
