"""The platform of a session, where it decides what Strandline does."""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession

from strandline.io.spark.databricks_runtime import runs_on_databricks
from strandline.io.spark.session_settings import setting

_UNITY_CATALOG_OSS: Final = "io.unitycatalog."


def is_databricks(session: SparkSession) -> bool:
    """Return True if *session* runs on Databricks, also if this process is elsewhere and connected to it."""
    return runs_on_databricks() or bool(setting(session.conf, "spark.databricks.cloudProvider"))


def is_unity_catalog_oss(session: SparkSession, catalog: str | None) -> bool:
    """Return True if *catalog* is of Unity Catalog OSS. False: it is not, or the platform does not show it."""
    plugin = setting(session.conf, f"spark.sql.catalog.{catalog}")
    return (plugin or "").startswith(_UNITY_CATALOG_OSS)
