"""A lake in a Hive metastore with Derby as its database. Every file of both is in PySpark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from documents import ROOT
from lakehouse import QUICK_JVM
from pymongo.database import Database
from shared_jvm import FEW_ROWS

STEPS = Path(__file__).parents[1] / "catalog_steps.py"


def hive(folder: Path, **connection: str) -> dict[str, str]:
    """Spark settings of a metastore in *folder*. *connection* are attributes of Derby's URL."""
    attributes = "".join(f";{name}={value}" for name, value in {"create": "true", **connection}.items())
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:{folder}/metastore{attributes}",
        "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
        "spark.hadoop.hive.metastore.schema.verification": "false",
    }


def configure(folder: Path, mongo_uri: str, database: str, spark: dict[str, str]) -> None:
    settings = {
        "source": {"name": "test", "uri": mongo_uri},
        "capture": {"scope": "database", "target": database, "heartbeat_interval_ms": 100},
        "gold": {"sql_dir": str(folder / "gold")},
        "lake": {"catalog": "spark_catalog", "schema": "Shop2"},
        "spark": {"master": "local[2]", "conf": FEW_ROWS | spark},
    }
    (folder / "base.yml").write_text(yaml.safe_dump(settings), encoding="utf-8")


def test_every_command_works_in_a_hive_metastore(
    mongo_uri: str, database: Database[dict[str, Any]], tmp_path: Path
) -> None:
    configure(tmp_path, mongo_uri, database.name, hive(tmp_path))
    environ = {name: value for name, value in os.environ.items() if name != "SPARK_REMOTE"} | QUICK_JVM
    environ |= {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "STRANDLINE_CONF": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, str(STEPS), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        env=environ,
        cwd=tmp_path,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "\tat " not in ran.stderr, "no stack trace of Java"
