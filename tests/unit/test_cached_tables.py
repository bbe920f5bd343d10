"""Nothing is read twice from one version of a table, and every new version is seen."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from strandline.io.tables import cached_tables
from strandline.io.tables.cached_tables import CachedTables
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.model.query import Query
from strandline.model.tables import Lake, TableName

TABLE = TableName("control", "t")
COUNT = Query(TABLE).aggregate(rows=("count", "n"))


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeltaRsTables:
    monkeypatch.setattr(cached_tables, "_FRESH_SECONDS", 0.0)
    tables = DeltaRsTables(Lake(root=str(tmp_path)))
    tables.insert_rows(TABLE, "n BIGINT", [{"n": 1}], "n")
    return tables


def test_a_new_version_is_seen_and_an_old_one_is_not_read_again(writer: DeltaRsTables) -> None:
    tables = CachedTables(writer.lake)
    assert tables.query(COUNT) == [{"rows": 1}]
    tables.query(COUNT)[0]["rows"] = 99
    opened = tables._opened(TABLE)
    assert (tables.query(COUNT), tables._opened(TABLE) is opened) == ([{"rows": 1}], True)
    size = tables.size(TABLE)
    assert (size.rows, size.files, size.version, tables.size(TABLE) is size) == (1, 1, 1, True)
    assert size.changed_at is not None

    writer.insert_rows(TABLE, "n BIGINT", [{"n": 2}], "n")
    assert tables.query(COUNT) == [{"rows": 2}]
    assert (tables.size(TABLE).rows, tables.size(TABLE).version) == (2, 2)
    assert tables.query(Query(TABLE).select("n").where(("n", "in", {1}))) == [{"n": 1}], "a set has no hash"


def test_a_table_that_is_created_again_is_another_one(writer: DeltaRsTables) -> None:
    tables = CachedTables(writer.lake)
    assert tables.query(COUNT) == [{"rows": 1}]
    before = tables.id(TABLE)
    shutil.rmtree(writer.lake.path(TABLE))
    assert not tables.exists(TABLE)
    writer.insert_rows(TABLE, "n BIGINT", [{"n": 5}], "n")
    assert tables.id(TABLE) != before
    assert tables.query(Query(TABLE).select("n")) == [{"n": 5}]


def test_a_log_whose_first_files_are_gone_is_read(writer: DeltaRsTables) -> None:
    folder = Path(writer.lake.path(TABLE))
    DeltaTable(str(folder)).create_checkpoint()
    (folder / "_delta_log" / f"{0:020}.json").unlink()
    tables = CachedTables(writer.lake)
    assert tables.query(COUNT) == [{"rows": 1}]
    assert tables.size(TABLE).checkpoint == 1
