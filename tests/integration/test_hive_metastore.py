"""A lake in a Hive metastore with Derby as its database. Every file of both is in PySpark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from catalog_steps import run_in_a_process
from pymongo.database import Database
from shared_jvm import FEW_ROWS


# why long: every call of the metastore is slow, and this is every command
@pytest.mark.long
def test_a_lake_in_a_hive_metastore_is_captured_merged_and_built(
    mongo_uri: str, database: Database[dict[str, Any]], tmp_path: Path
) -> None:
    conf = FEW_ROWS | {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
        "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
        "spark.hadoop.hive.metastore.schema.verification": "false",
    }
    lake = {"catalog": "spark_catalog", "schema": "Shop2"}
    run_in_a_process(tmp_path, mongo_uri, database.name, lake, {"master": "local[2]", "conf": conf})
