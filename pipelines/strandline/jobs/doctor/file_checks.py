"""Checks of the files of gold and quality. MongoDB, the lake and a running Spark are not needed to read them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from strandline.errors import missing_package
from strandline.gold.cases import load_cases
from strandline.jobs.doctor.findings import Check, Finding, Notes, doctor_check
from strandline.jobs.gold.planned import graph_of
from strandline.model.tables import TableName
from strandline.quality.rules import Suite
from strandline.settings.configuration import Settings
from strandline.settings.output import GoldSettings, QualitySettings

_GOLD_FILES: Final = Check(
    "gold.files", "SQL files of gold", why="a file with a mistake stops gold", fix="correct the named lines"
)
_GOLD_CASES: Final = Check(
    "gold.cases", "Cases of `gold test`", why="a case that is not read tests nothing", fix="correct the named file"
)
_QUALITY_FILES: Final = Check(
    "quality.files",
    "Suites of expectations",
    why="a suite with a mistake stops the quality gate",
    fix="correct the named file",
)
_LISTED: Final = 5


def examine_files(notes: Notes, settings: Settings) -> tuple[dict[str, tuple[TableName, ...]], list[Suite]]:
    """Note what is to be said about the files. Return the tables that each node of gold reads, and the suites.

    I/O: reads the files; writes nothing.
    """
    return _gold(notes, settings.gold), _quality(notes, settings.quality)


def _gold(notes: Notes, settings: GoldSettings) -> dict[str, tuple[TableName, ...]]:
    graph = notes.attempt(_GOLD_FILES, lambda: graph_of(settings))
    if graph is None:
        return {}
    if not graph.nodes:
        notes.add(
            _GOLD_FILES.info(
                "no SQL files", fix="write some into conf/gold, or set gold.sql_dir (strandline explain gold)"
            )
        )
        return {}
    notes.add(_GOLD_FILES.ok(f"{len(graph.nodes)} views and tables, {settings.sql_dir}"))
    folder = settings.cases_folder
    notes.look(_GOLD_CASES, lambda: _GOLD_CASES.ok(f"{len(load_cases(folder)) if folder else 0} cases, {folder}"))
    return {str(node.table): tuple(node.statement.tables()) for node in graph.nodes.values()}


def _quality(notes: Notes, settings: QualitySettings) -> list[Suite]:
    check = _QUALITY_FILES
    if settings.suites_dir is None:
        advice = "write some into conf/quality, or set quality.suites_dir (strandline explain quality)"
        notes.add(check.info("no suites", fix=advice))
        return []
    try:
        from strandline.jobs.gold.quality import suites_of
    except ModuleNotFoundError as error:  # the wheel does not require PySpark
        if (missing := missing_package(error)) is None:
            raise
        notes.add(check.info(f"not looked at, because {missing.message}"))
        return []
    suites = notes.attempt(check, lambda: suites_of(settings))
    if suites is None:
        return []
    notes.add(check.ok(f"{len(suites)} suites, {settings.suites_dir}"))
    return suites


@doctor_check(
    "gold.names",
    "Tables that SQL files read exist",
    why="gold skips what lacks an input",
    fix="correct the name; strandline status lists the tables",
    unknown="warning",
)
def gold_names(check: Check, reads: Mapping[str, Collection[TableName]], existing: Collection[TableName]) -> Finding:
    """Return the finding for the tables that nodes of gold read. Pure.

    Args:
        reads: Tables by the name of the node.
        existing: Tables and views that exist. Nodes of gold count as there.
    """
    there = {str(table) for table in existing} | set(reads)
    missing = [f"{node} reads {table}" for node, tables in reads.items() for table in tables if str(table) not in there]
    return _missing(check, missing) or check.ok("all of them exist")


@doctor_check(
    "quality.names",
    "Tables and columns that suites check exist",
    why="an expectation about a column that is not there fails",
    fix="correct the name; strandline schema show lists the columns",
    unknown="warning",
)
def quality_names(
    check: Check, suites: Collection[Suite], columns: Mapping[TableName, Collection[str]], nodes: Collection[str]
) -> Finding:
    """Return the finding for the tables and columns that suites check. Pure.

    Args:
        columns: Names of the columns of each table that exists.
        nodes: Names of the nodes of gold. They count as there, also before they are built.
    """
    missing = [
        f"{suite.file} checks {suite.table}"
        for suite in suites
        if suite.table not in columns and str(suite.table) not in nodes
    ]
    for suite in suites:
        missing += _missing_columns(suite, columns.get(suite.table))
    return _missing(check, missing) or check.ok("all of them exist")


@doctor_check(
    "gold.orphans",
    "Gold tables that no SQL file makes",
    why="their rows are old, and stay",
    fix="strandline gold drop NAME removes one",
    unknown="warning",
)
def orphans(check: Check, tables: Collection[TableName]) -> Finding:
    return check.warning(", ".join(map(str, tables))) if tables else check.ok("none")


def _missing_columns(suite: Suite, columns: Collection[str] | None) -> Iterator[str]:
    if columns is None:
        return
    present = {name.lower() for name in columns}
    for name in dict.fromkeys(
        expectation.column for expectation in suite.expectations if expectation.column is not None
    ):
        if name.lower() not in present and name.partition(".")[0].strip("`").lower() not in present:
            yield f"{suite.file} checks the column {name} of {suite.table}"


def _missing(check: Check, missing: list[str]) -> Finding | None:
    if not missing:
        return None
    more = f", and {len(missing) - _LISTED} more" if len(missing) > _LISTED else ""
    return check.warning(f"not there: {', '.join(missing[:_LISTED])}{more}")
