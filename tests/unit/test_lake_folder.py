"""Checks of the lake's folder (writable, hard links), and the choice of the capture engine that follows from them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from strandline.bronze.writer import clustering
from strandline.errors import ConfigurationError
from strandline.io.delta_log.lake_folder import has_hard_links, require_writable
from strandline.jobs.lake_context import open_capture_without_spark
from strandline.model.tables import Lake
from strandline.settings.configuration import Settings


def settings(root: Path, engine: str = "auto") -> Settings:
    return Settings(lake={"root": str(root)}, capture={"engine": engine})  # type: ignore[arg-type]  # why: pydantic builds the sections


def no_links(*_: object) -> None:
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


def test_a_probe_leaves_nothing(tmp_path: Path) -> None:
    require_writable(tmp_path / "lake" / "deep")
    assert list(tmp_path.iterdir()) == []
    assert has_hard_links(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("engine", "opens"), [("auto", True), ("native", True), ("spark", False)])
def test_the_engine_decides_whether_capture_needs_spark(tmp_path: Path, engine: str, opens: bool) -> None:
    assert (open_capture_without_spark(settings(tmp_path, engine)) is not None) == opens


def test_the_engine_of_the_pipeline_is_the_engine_of_capture(tmp_path: Path) -> None:
    pipeline = {"lake": {"root": str(tmp_path)}, "engine": "spark"}
    assert open_capture_without_spark(Settings(**pipeline)) is None  # type: ignore[arg-type]  # why: as above
    own = Settings(**pipeline, capture={"engine": "auto"})  # type: ignore[arg-type]  # why: as above
    assert open_capture_without_spark(own) is not None


@pytest.mark.parametrize(
    ("lake", "is_clustered"),
    [
        (Lake(root="/data/lake"), False),
        (Lake(root="s3://bucket/lake"), False),
        (Lake(root="hdfs://namenode/lake"), True),
        (Lake(catalog="main"), True),
    ],
)
def test_bronze_is_clustered_where_delta_rs_never_writes_it(lake: Lake, is_clustered: bool) -> None:
    """Delta-rs writes no clustered table: decision 38."""
    assert (clustering(lake) != ()) == is_clustered


def test_a_folder_without_hard_links_is_left_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", no_links)
    assert open_capture_without_spark(settings(tmp_path)) is None
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_folder_is_an_error_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("a file")
    with pytest.raises(ConfigurationError, match=r"cannot be written.*choose another lake.root"):
        open_capture_without_spark(settings(tmp_path / "lake"))
