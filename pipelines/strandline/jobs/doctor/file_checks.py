"""Checks of the files of gold and quality. MongoDB, the lake and a running Spark are not needed to read them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from strandline.gold.cases import load_cases
from strandline.jobs.doctor.catalogue import CHECKS
from strandline.jobs.doctor.findings import Check, Finding, Notes
from strandline.jobs.gold.planned import graph_of
from strandline.model.tables import TableName
from strandline.quality.rules import Suite
from strandline.settings.configuration import Settings
from strandline.settings.output import GoldSettings, QualitySettings

_LISTED: Final = 5


def examine_files(notes: Notes, settings: Settings) -> tuple[dict[str, tuple[TableName, ...]], list[Suite]]:
    """Note what is to be said about the files. Return the tables that each node of gold reads, and the suites.

    I/O: reads the files; writes nothing.
    """
    return _gold(notes, settings.gold), _quality(notes, settings.quality)


def _gold(notes: Notes, settings: GoldSettings) -> dict[str, tuple[TableName, ...]]:
    files, cases = CHECKS["gold.files"], CHECKS["gold.cases"]
    graph = notes.attempt(files, lambda: graph_of(settings))
    if graph is None:
        return {}
    if not graph.nodes:
        notes.add(
            files.info("no SQL files", fix="write some into conf/gold, or set gold.sql_dir (strandline explain gold)")
        )
        return {}
    notes.add(files.ok(f"{len(graph.nodes)} views and tables, {settings.sql_dir}"))
    folder = settings.cases_folder
    notes.look(cases, lambda: cases.ok(f"{len(load_cases(folder)) if folder else 0} cases, {folder}"))
    return {str(node.table): tuple(node.statement.tables()) for node in graph.nodes.values()}


def _quality(notes: Notes, settings: QualitySettings) -> list[Suite]:
    check = CHECKS["quality.files"]
    if settings.suites_dir is None:
        advice = "write some into conf/quality, or set quality.suites_dir (strandline explain quality)"
        notes.add(check.info("no suites", fix=advice))
        return []
    try:
        from strandline.jobs.gold.quality import suites_of
    except ModuleNotFoundError as error:  # the wheel does not require PySpark
        if error.name != "pyspark":
            raise
        notes.add(check.info("not looked at, because PySpark is not installed"))
        return []
    suites = notes.attempt(check, lambda: suites_of(settings))
    if suites is None:
        return []
    notes.add(check.ok(f"{len(suites)} suites, {settings.suites_dir}"))
    return suites


def gold_names(reads: Mapping[str, Collection[TableName]], known: Collection[TableName]) -> Finding:
    """Return the finding for the tables that nodes of gold read. Pure.

    Args:
        reads: Tables by the name of the node.
        known: Tables and views that exist. Nodes of gold count as there.
    """
    check = CHECKS["gold.names"]
    there = {str(table) for table in known} | set(reads)
    missing = [f"{node} reads {table}" for node, tables in reads.items() for table in tables if str(table) not in there]
    return _missing(check, missing) or check.ok("all of them exist")


def quality_names(
    suites: Collection[Suite], columns: Mapping[TableName, Collection[str]], nodes: Collection[str]
) -> Finding:
    """Return the finding for the tables and columns that suites check. Pure.

    Args:
        columns: Names of the columns of each table that exists.
        nodes: Names of the nodes of gold. They count as there, also before they are built.
    """
    check = CHECKS["quality.names"]
    missing = [
        f"{each.file} checks {each.table}"
        for each in suites
        if each.table not in columns and str(each.table) not in nodes
    ]
    for suite in suites:
        missing += _missing_columns(suite, columns.get(suite.table))
    return _missing(check, missing) or check.ok("all of them exist")


def _missing_columns(suite: Suite, columns: Collection[str] | None) -> Iterator[str]:
    if columns is None:
        return
    present = {name.lower() for name in columns}
    for name in dict.fromkeys(each.column for each in suite.expectations if each.column is not None):
        if name.lower() not in present and name.partition(".")[0].strip("`").lower() not in present:
            yield f"{suite.file} checks the column {name} of {suite.table}"


def _missing(check: Check, missing: list[str]) -> Finding | None:
    if not missing:
        return None
    more = f", and {len(missing) - _LISTED} more" if len(missing) > _LISTED else ""
    return check.warning(f"not there: {', '.join(missing[:_LISTED])}{more}")
