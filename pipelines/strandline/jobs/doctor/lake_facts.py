"""Facts about the lake: they are read here, and judged by `lake_checks`."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast

from strandline.bronze.bronze_properties import forgets_transactions
from strandline.control.notifications import MAINTENANCE, newest_notification
from strandline.control.sources import state_of
from strandline.errors import missing_package
from strandline.io.delta_log.lake_folder import has_hard_links, require_writable
from strandline.io.delta_log.object_store import require_conditional_create
from strandline.io.tables.format_check import other_formats
from strandline.io.tables.measured_tables import MeasuredTables
from strandline.io.tables.table_store import TableStore, own_tables
from strandline.jobs.doctor import lake_checks as judge
from strandline.jobs.doctor.findings import Finding, Notes
from strandline.jobs.doctor.source_checks import position
from strandline.jobs.doctor.source_facts import CommittedEnd
from strandline.jobs.lake_context import LakeContext, folder_here, open_without_spark, store_here, store_options
from strandline.jobs.offsets.life_cycle import last_offset
from strandline.jobs.operations.engines import engines_of_rows
from strandline.model.table_schemas import bronze_table
from strandline.model.tables import LAYERS, TableName
from strandline.settings.configuration import Settings
from strandline.source.oplog import OplogWindow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.io.tables.spark_tables import Tables
    from strandline.jobs.context import JobContext


def session_of(ctx: LakeContext) -> JobContext | None:
    """Return *ctx* with its Spark session. None: it has none."""
    return cast("JobContext", ctx) if hasattr(ctx, "spark") else None


def opened_lake(
    notes: Notes, settings: Settings, spark: SparkSession | None, *, with_spark: bool
) -> LakeContext | None:
    """Open the lake with Spark, or without if *spark* is None. None: it cannot be opened; a finding says why.

    Args:
        with_spark: False: the user has said ``--no-spark``.
    """
    check = judge.OPEN
    if spark is not None:
        from strandline.jobs.context import open_lake  # why here: it imports PySpark

        return _with_place(notes, notes.attempt(check, lambda: open_lake(spark, settings)))
    answer = notes.attempt(check, lambda: (open_without_spark(settings),))
    if answer == (None,) and with_spark:
        notes.add(check.info("not looked at: only Spark can open it"))
    elif answer == (None,):
        notes.add(
            check.error(
                "--no-spark needs a lake in a folder of this machine (with a local spark.master, and no other Spark in"
                " the environment) or in an object store, and tables that delta-rs can read",
                fix="run it without --no-spark",
            )
        )
    return _with_place(notes, None if answer is None else answer[0])


def _with_place(notes: Notes, ctx: LakeContext | None) -> LakeContext | None:
    if ctx is not None:
        lake, bronze = ctx.tables.lake, bronze_table(ctx.settings.source.name)
        notes.add(judge.OPEN.ok(lake.path(bronze) if lake.by_path else lake.sql(bronze)))
    return ctx


def committed_end(notes: Notes, ctx: LakeContext) -> CommittedEnd | None:
    """Return the end of bronze. None: bronze cannot be read; a finding says why."""
    return notes.attempt(position, lambda: CommittedEnd(last_offset(ctx)))


def examine_place(notes: Notes, settings: Settings) -> bool:
    """Note if the lake's folder or store can be written. Return False if it cannot.

    I/O: writes a file and removes it; in S3 creates the object with which every capture begins.
    """
    writable, writers = judge.WRITABLE, judge.writers_of_folder
    if (folder := folder_here(settings)) is not None:
        root = Path(folder.root or "")
        if not notes.look(writable, lambda: _written(root)):
            return False
        notes.look(writers, lambda: writers(has_links=has_hard_links(root)))
        notes.look(judge.space, lambda: _space(root))
        return True
    if (store := store_here(settings)) is None:
        notes.add(writable.info("not looked at: only a commit of Spark shows it"))
        return True

    def probe() -> tuple[Finding, ...]:
        require_conditional_create(store.root or "", store_options(settings))
        return writable.ok("an object can be written"), writers.ok("the store refuses a second writer")

    return notes.look(writable, probe)


def _written(root: Path) -> Finding:
    require_writable(root)
    return judge.WRITABLE.ok("a file can be written")


def _space(root: Path) -> Finding:
    disk = shutil.disk_usage(next(path for path in (root, *root.parents) if path.exists()))
    return judge.space(disk.free, disk.total)


def examine_tables(notes: Notes, ctx: LakeContext, window: OplogWindow | None, now: datetime) -> None:
    """Note what is to be said about the tables. I/O: reads properties and logs of all tables; writes nothing."""
    settings, tables = ctx.settings, ctx.tables
    source = settings.source.name
    exists = notes.attempt(judge.bronze, lambda: tables.exists(bronze_table(source)))
    if exists is None:
        return
    notes.look(judge.bronze, lambda: judge.bronze(exists, state_of(tables, source)))
    if exists:
        notes.look(judge.transactions, lambda: _transactions(tables, bronze_table(source)))
    notes.look(judge.lake_format, lambda: judge.lake_format(list(other_formats(tables))))
    notes.look(judge.files, lambda: judge.files(_sizes(ctx)))
    notes.look(
        judge.maintenance,
        lambda: judge.maintenance(newest_notification(tables, source, MAINTENANCE), now, is_new=not exists),
    )
    notes.add(judge.retention(settings.maintenance, window))
    notes.look(judge.columns, lambda: _columns(ctx))
    notes.look(judge.engines, lambda: judge.engines(engines_of_rows(tables)))
    if (job := session_of(ctx)) is not None and not tables.lake.by_path:
        notes.look(judge.catalog, lambda: _catalog(job.tables))


def _transactions(tables: TableStore, bronze: TableName) -> Finding:
    return judge.transactions(forgets_transactions(bronze, tables.properties(bronze)))


def _sizes(ctx: LakeContext) -> list[judge.FileSizes]:
    names = own_tables(ctx.tables, *LAYERS)
    if (job := session_of(ctx)) is not None:
        details = [(table, job.tables.detail(table)) for table in names]
        return [judge.FileSizes(str(table), detail["numFiles"], detail["sizeInBytes"]) for table, detail in details]
    measured = MeasuredTables(ctx.tables.lake, store_options(ctx.settings))
    sizes = [(table, measured.size(table)) for table in names]
    return [judge.FileSizes(str(table), size.files, size.bytes) for table, size in sizes]


def _columns(ctx: LakeContext) -> Iterable[Finding]:
    try:
        from strandline.silver.column_mapping import mapping_note
    except ModuleNotFoundError as error:  # the wheel does not require PySpark
        if (missing := missing_package(error)) is None:
            raise
        return [judge.columns.info(f"not looked at, because {missing.message}")]
    notes = (mapping_note(table, ctx.tables.properties(table)) for table in own_tables(ctx.tables, "silver"))
    return judge.columns([note for note in notes if note is not None])


def _catalog(tables: Tables) -> Finding:
    lake = tables.lake
    there = [layer for layer in LAYERS if tables.spark.catalog.databaseExists(lake.sql_schema(layer))]
    has_views = tables.catalog.views(there[0]) is not None if there else None
    return judge.catalog(str(lake.catalog), there, has_views=has_views)
