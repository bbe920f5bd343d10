"""A project that `strandline init` wrote: its gold passes its cases, before there is any lake."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from pipelines.io.tables import Tables
from pipelines.jobs.context import JobContext
from pipelines.jobs.gold.job import check_gold
from pipelines.project.scaffold import Project, write_project
from pipelines.settings.configuration import load_settings


def test_its_gold_passes_its_cases(spark: SparkSession, tables: Tables, tmp_path: Path) -> None:
    write_project(tmp_path, Project(collection="people"))
    (result,) = check_gold(JobContext(load_settings("local", tmp_path / "conf"), spark, tables))
    assert (result.node, result.passed) == ("people_by_day", True), result
