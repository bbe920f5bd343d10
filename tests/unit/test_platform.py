"""Platforms that a session's settings tell."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from strandline.io.spark.platform import is_databricks, is_unity_catalog_oss

CONNECTOR = "io.unitycatalog.spark.UCSingleCatalog"


def session(hidden: bool = False, **settings: str) -> Any:
    """A session that shows its settings, or raises as serverless does."""

    def get(key: str, default: str | None) -> str | None:
        if hidden:
            raise PySparkException(f"{key} is not available")
        return settings.get(key, default)

    return SimpleNamespace(conf=SimpleNamespace(get=get))


def test_databricks_is_known_by_its_runtime_or_by_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABRICKS_RUNTIME_VERSION", raising=False)
    assert not is_databricks(session())
    assert not is_databricks(session(hidden=True))
    assert is_databricks(session(**{"spark.databricks.cloudProvider": "AWS"}))
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "18.0")
    assert is_databricks(session(hidden=True))


def test_unity_catalog_oss_is_known_by_the_class_of_its_connector() -> None:
    settings = {"spark.sql.catalog.main": CONNECTOR}
    assert is_unity_catalog_oss(session(**settings), "main")
    assert not is_unity_catalog_oss(session(**settings), "other")
    assert not is_unity_catalog_oss(session(**{"spark.sql.catalog.main": "org.example.Catalog"}), "main")
    assert not is_unity_catalog_oss(session(hidden=True), "main")
