"""The examination of `strandline doctor`: which facts are gathered, in which order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from strandline.errors import missing_package
from strandline.jobs.doctor.file_checks import examine_files, gold_names, orphans, quality_names
from strandline.jobs.doctor.findings import Finding, Notes
from strandline.jobs.doctor.lake_facts import committed_end, examine_place, examine_tables, opened_lake, session_of
from strandline.jobs.doctor.setting_checks import examine_settings
from strandline.jobs.doctor.source_facts import examine_source
from strandline.jobs.doctor.spark_checks import SESSION
from strandline.jobs.gold.planned import gold_orphans, is_defined
from strandline.jobs.lake_context import LakeContext, tables_to_merge
from strandline.model.tables import TableName
from strandline.quality.rules import Suite
from strandline.settings.configuration import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def examine(settings: Settings, *, with_spark: bool = True, workers: bool = False) -> list[Finding]:
    """Examine configuration, source, lake, Spark and files. A fact that cannot be had is a finding.

    I/O: starts Spark; connects to the source; reads properties and logs of the lake's tables. Writes only what a
    capture writes at its start, and no table.

    Args:
        with_spark: False: Spark is not started.
        workers: Ask every worker of Spark, too.
    """
    notes, now = Notes(), datetime.now(UTC)
    notes.add(*examine_settings(settings))
    is_writable = examine_place(notes, settings)
    if with_spark and not is_writable:
        notes.add(SESSION.info("not started, because the lake cannot be written"))
    spark = _session(notes, settings, now.date(), start=with_spark and is_writable, needed=with_spark)
    ctx = opened_lake(notes, settings, spark, with_spark=with_spark)
    examine_context(notes, settings, ctx, now)
    if workers and ctx is not None and (job := session_of(ctx)) is not None:
        from strandline.jobs.doctor.spark_facts import examine_workers  # why here: it imports PySpark

        examine_workers(notes, job)
    return notes.sorted()


def _session(notes: Notes, settings: Settings, today: date, *, start: bool, needed: bool) -> SparkSession | None:
    """Note what is to be said about Spark. Return the session; None: it was not started.

    Args:
        start: Start Spark.
        needed: Without a package of Spark the finding is an error or a warning. False: it is good to know.
    """
    try:
        from strandline.jobs.doctor.spark_facts import examine_spark, started
    except ModuleNotFoundError as error:  # the wheel does not require PySpark
        if (missing := missing_package(error)) is None:
            raise
        finding = _without_spark(settings) if needed else SESSION.info
        notes.add(finding(missing.message, fix=missing.next_step))
        return None
    spark = started(notes, settings) if start else None
    examine_spark(notes, settings, spark, today)
    return spark


def _without_spark(settings: Settings) -> Callable[..., Finding]:
    """Return the kind of finding for missing packages: an error if all of silver, or gold, needs Spark."""
    may_merge = tables_to_merge(settings, settings.silver_engine) is not None
    return SESSION.warning if may_merge and not is_defined(settings) else SESSION.error


def examine_context(notes: Notes, settings: Settings, ctx: LakeContext | None, now: datetime) -> None:
    """Note what is to be said about source, tables and files.

    Args:
        ctx: None: the lake cannot be opened.
    """
    window = examine_source(notes, settings, None if ctx is None else committed_end(notes, ctx), now.date())
    if ctx is not None:
        examine_tables(notes, ctx, window, now)
        notes.look(orphans, lambda: orphans(gold_orphans(ctx)))
    reads, suites = examine_files(notes, settings)
    if ctx is not None and (reads or suites):
        notes.look(gold_names, lambda: _names(ctx, reads, suites))


def _names(ctx: LakeContext, reads: Mapping[str, Collection[TableName]], suites: Collection[Suite]) -> list[Finding]:
    """Return the findings for the tables and columns that files of gold and quality name. I/O: looks for the tables."""
    if not ctx.tables.names("silver"):
        return [gold_names.info("not looked at: silver has no table yet")]
    named = {table for tables in reads.values() for table in tables} | {suite.table for suite in suites}
    columns = {table: ctx.tables.columns(table) for table in named if ctx.tables.exists(table)}
    findings = [gold_names(reads, columns)] if reads else []
    return [*findings, quality_names(suites, columns, set(reads))] if suites else findings
