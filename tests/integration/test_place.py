"""A process that sees another file system than Spark, as on a cluster where `fs.defaultFS` is not the local disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import QUICK_JVM
from pyspark.sql import SparkSession

from strandline.io.tables.filesystem_check import as_spark_sees_it
from strandline.model.tables import Lake

# Opens a lake at {here}/lake, which Spark looks for in {here}/elsewhere.
_OPEN = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from strandline.io.tables.ddl import schema_of
from strandline.io.tables.spark_tables import Tables
from strandline.jobs.context import open_context
from strandline.jobs.doctor.findings import Notes
from strandline.jobs.doctor.lake_facts import examine_tables
from strandline.model.tables import Lake, TableName
from strandline.settings.configuration import Settings
here = sys.argv[1]
link = f"spark.hadoop.fs.viewfs.mounttable.cluster.link.{here}/lake"
conf = {"spark.hadoop.fs.defaultFS": "viewfs://cluster/", link: f"file://{here}/elsewhere"}
table = TableName("bronze", "mongo")
for _ in range(2):  # the first time there is nothing yet
    ctx = open_context(Settings(lake={"root": f"{here}/lake"}, spark={"master": "local[1]", "conf": conf}))
    for tables in (ctx.tables, Tables(ctx.spark, Lake(root=f"{here}/lake"))):  # the second one was told nothing of it
        tables.create(table, schema_of("a INT"))
    assert ctx.tables.exists(table)
    notes = Notes()
    examine_tables(notes, ctx, None, datetime.now(UTC))
    (told,) = [finding.found for finding in notes.sorted() if finding.check == "lake.bronze"]
    print([ctx.tables.lake.root, told, list(map(str, ctx.tables.names("bronze")))])
    assert not Path(here, "lake").exists(), "no folder is left that Spark does not look at"
by_uri = open_context(Settings(lake={"root": f"file://{here}/elsewhere"}, spark={"master": "local[1]", "conf": conf}))
print([by_uri.tables.lake.root, by_uri.tables.exists(table)])
"""


@pytest.mark.long
def test_a_table_that_only_spark_sees_is_there(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    environ = {name: value for name, value in os.environ.items() if name != "SPARK_REMOTE"} | QUICK_JVM
    command = [sys.executable, "-c", _OPEN, str(tmp_path)]
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=environ, cwd=Path(__file__).parents[2]
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        *[str([f"viewfs://cluster{tmp_path}/lake", "there", ["bronze.mongo"]])] * 2,
        str([f"file://{tmp_path}/elsewhere", True]),
    ]
    assert not (tmp_path / "lake").exists()
    assert (tmp_path / "elsewhere" / "bronze" / "mongo" / "_delta_log").is_dir()


@pytest.mark.parametrize("name", ["lake", "la[k]e{*}?", "a:b", "a b%20c"])
@pytest.mark.parametrize("scheme", ["", "file://", "file:"])
def test_a_folder_that_both_see_is_a_folder(spark: SparkSession, tmp_path: Path, scheme: str, name: str) -> None:
    assert as_spark_sees_it(spark, Lake(root=f"{scheme}{tmp_path}/{name}")) == Lake(root=f"{tmp_path}/{name}")
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    assert list((tmp_path / name).iterdir()) == []


@pytest.mark.parametrize("lake", [Lake(root="s3a://b/l"), Lake(root="file://host/l"), Lake(catalog="main")])
def test_a_lake_that_is_no_local_folder_stays_unchanged(spark: SparkSession, lake: Lake) -> None:
    assert as_spark_sees_it(spark, lake) == lake
