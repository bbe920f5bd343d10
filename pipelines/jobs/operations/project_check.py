"""Checks of a project's files. MongoDB, the lake and a running Spark are not needed."""

from __future__ import annotations

from pathlib import Path

from pipelines.gold.cases import load_cases
from pipelines.gold.sql_files import load_graph
from pipelines.jobs.selection import selection_of
from pipelines.model.table_schemas import bronze_table
from pipelines.settings.configuration import Settings
from pipelines.settings.output import GoldSettings, QualitySettings


def check_project(settings: Settings) -> dict[str, str]:
    """Check the settings and the files of gold and quality. Return one line of text for each check.

    I/O: reads the files; writes nothing.

    Raises:
        ConfigurationError: A file is invalid.
    """
    has_uri = settings.source.is_configured
    lake, bronze = settings.lake_location, bronze_table(settings.source.name)
    selection_of(settings.capture)
    return {
        "target": settings.target,
        "MongoDB": "a URI is set" if has_uri else "no URI: set STRANDLINE_SOURCE__URI before a capture",
        "lake": lake.path(bronze) if lake.by_path else lake.sql(bronze),
        "gold": _gold(settings.gold),
        "quality": _quality(settings.quality),
    }


def _gold(settings: GoldSettings) -> str:
    nodes = load_graph(Path(settings.sql_dir) if settings.sql_dir else None).nodes
    cases = load_cases(settings.cases_folder) if settings.cases_folder else []
    return f"{len(nodes)} views and tables, {len(cases)} cases, {settings.sql_dir}" if nodes else "none"


def _quality(settings: QualitySettings) -> str:
    if settings.suites_dir is None:
        return "none"
    try:
        from pipelines.jobs.gold.quality import suites_of
    except ModuleNotFoundError as error:  # the wheel does not require PySpark
        if error.name != "pyspark":
            raise
        return f"not checked, because PySpark is not installed: {settings.suites_dir}"
    return f"{len(suites_of(settings))} suites, {settings.suites_dir}"
