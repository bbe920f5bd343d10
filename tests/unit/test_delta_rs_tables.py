"""Tables through delta-rs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from strandline.errors import LakeUnavailable
from strandline.io.delta_log.table_folder import commit_name
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.model.table_schemas import CUTS
from strandline.model.tables import Lake, TableName


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


@pytest.mark.parametrize(
    "cleaned",
    [(), (0,), (0, 1, 2), (0, 1, 2, 3), (0, 1, 2, 3, 4, 5, 6)],
    ids=["no commit", "the first", "all before the checkpoint", "that of the checkpoint", "all"],
)
def test_version_id_and_properties_are_those_that_delta_rs_sees(tmp_path: Path, cleaned: tuple[int, ...]) -> None:
    tables, name = DeltaRsTables(Lake(root=str(tmp_path))), TableName("control", "sources")
    tables.create_table(name, "n BIGINT", properties={"first": "1"})
    folder = tables.folder(name)
    for number in range(1, 7):
        if number % 2:
            tables.set_properties(name, {"number": str(number)})
        else:
            tables.append_rows(name, pa.table({"n": [number]}))
        if number == (6 if 6 in cleaned else 3):
            folder.table().create_checkpoint()
    for version in cleaned:
        (tmp_path / "control" / "sources" / commit_name(version)).unlink()
    opened = folder.table()
    metadata = opened.metadata()
    assert tables.version(name) == opened.version() == 6
    assert tables.id(name) == str(metadata.id)
    assert tables.properties(name) == dict(metadata.configuration)
    assert tables.properties(name)["number"] == "5"


def test_a_table_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    tables = DeltaRsTables(Lake(root=str(tmp_path)))
    for question in (tables.version, tables.id, tables.properties):
        with pytest.raises(LakeUnavailable, match=r"control\.sources cannot be read"):
            question(TableName("control", "sources"))
