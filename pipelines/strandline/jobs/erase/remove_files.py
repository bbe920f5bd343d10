"""Second step of an erasure: no older version, file or log of a table holds the documents."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from strandline.control.erasures import Erasures
from strandline.control.sources import state_of
from strandline.errors import ConfigurationError
from strandline.io.delta_log.commits import LogFolder
from strandline.io.delta_log.table_folder import LOG, TableFolder
from strandline.io.delta_log.table_upkeep import NO_HOOKS, write_checkpoint
from strandline.io.tables.delta_rs_tables import DeltaRsTables, table_errors
from strandline.io.tables.file_maintenance import FILES_KEPT, LOG_KEPT
from strandline.jobs.context import JobContext
from strandline.jobs.lake_context import tables_here
from strandline.model.tables import TableName

_INTERVAL: Final = "delta.checkpointInterval"
_DEFAULT_INTERVAL: Final = "10"
_CHECK: Final = "spark.databricks.delta.retentionDurationCheck.enabled"
_OF_VERSION: Final = re.compile(rf"{LOG}/\.?(\d{{20}})\.")
"""Beginning of the name of a commit, a checkpoint or a checksum, also of one that Hadoop has written."""


def require_stopped(ctx: JobContext) -> None:
    """Raise ConfigurationError if files cannot be removed at once: a writer may need them, or only a catalog may."""
    if tables_here(ctx.settings) is None:
        raise ConfigurationError(
            "--now is for a lake in a folder or in S3: elsewhere the catalog keeps files and logs",
            next_step="erase without --now; strandline maintain removes the files after their retention",
        )
    if (state := state_of(ctx.tables, ctx.settings.source.name).state) not in ("stopped", "deleted"):
        raise ConfigurationError(
            f"source {ctx.settings.source.name} is {state}: --now removes files that a running writer may need",
            next_step="strandline stop, and end every silver and gold run",
        )


def remove_files(ctx: JobContext, identifier: str) -> None:
    """Remove older versions and logs of the tables of one erasure now. Its documents are hidden.

    I/O: VACUUM, a checkpoint, and the removal of all older commits, for each table. Readers of older versions lose
    them; readers that had not read all changes read the whole table.

    Effects on failure: each table is whole. Calling again is safe.
    """
    (erasure,) = (row for row in Erasures(ctx.tables).all(ctx.settings.source.name) if row["id"] == identifier)
    store = tables_here(ctx.settings)
    assert store is not None  # `require_stopped`
    for table in _versions(erasure):
        _vacuum(ctx, store, table)
        _forget_log(ctx, store, table, None)
    Erasures(ctx.tables).finish(identifier, datetime.now(UTC))


def finish_erasures(ctx: JobContext) -> int:
    """Note the erasures whose documents no file holds any more, as maintenance has removed the files.

    I/O: for each table of an erasure that is older than the table's retention, writes a checkpoint, and removes the
    commits from before the erasure. In a catalog, Delta removes them by itself.

    Returns:
        Number of erasures that still wait for the retention.
    """
    erasures, store, waiting = Erasures(ctx.tables), tables_here(ctx.settings), 0
    for erasure in erasures.all(ctx.settings.source.name):
        if erasure["hidden_at"] is None or erasure["gone_at"] is not None:
            continue
        versions = {table: version for table, version in _versions(erasure).items() if ctx.tables.exists(table)}
        for table, version in versions.items():
            if store is not None and datetime.now(UTC) - erasure["hidden_at"] > _retention(ctx, table):
                _forget_log(ctx, store, table, version)
        if all(ctx.tables.commits_between(table, version - 1, version) is None for table, version in versions.items()):
            erasures.finish(erasure["id"], datetime.now(UTC))
        else:
            waiting += 1
    return waiting


def _versions(erasure: dict[str, Any]) -> dict[TableName, int]:
    return {TableName.parse(name): version for name, version in json.loads(erasure["tables"]).items()}


def _retention(ctx: JobContext, table: TableName) -> timedelta:
    """Return for how long a table keeps removed files and commits, as `maintain` has set it."""
    properties = ctx.tables.properties(table)
    numbers = [re.search(r"\d+", properties.get(name, "")) for name in (FILES_KEPT, LOG_KEPT)]
    return max((timedelta(hours=int(number[0])) for number in numbers if number), default=timedelta.max)


def _vacuum(ctx: JobContext, store: DeltaRsTables, table: TableName) -> None:
    if store.can_write(table):
        with table_errors(table):
            store.folder(table).table().vacuum(
                retention_hours=0,
                enforce_retention_duration=False,
                dry_run=False,
                full=True,
                post_commithook_properties=NO_HOOKS,
            )
        return
    spark = ctx.spark
    before = spark.conf.get(_CHECK, "true")
    spark.conf.set(_CHECK, "false")
    try:
        spark.sql(f"VACUUM {ctx.tables.lake.sql(table)} RETAIN 0 HOURS").collect()
    finally:
        spark.conf.set(_CHECK, str(before))


def _forget_log(ctx: JobContext, store: DeltaRsTables, table: TableName, through: int | None) -> None:
    """I/O: writes a checkpoint of the newest version, then removes the commits up to *through*; None: all before it."""
    folder = store.folder(table)
    with table_errors(table):
        if store.can_write(table):
            checkpoint = write_checkpoint(folder)
        else:
            interval = ctx.tables.properties(table).get(_INTERVAL, _DEFAULT_INTERVAL)
            ctx.tables.set_properties(table, {_INTERVAL: "1"})  # Delta writes a checkpoint after this commit
            checkpoint = LogFolder(folder).checkpoint()
            ctx.tables.set_properties(table, {_INTERVAL: interval})
        remove_commits(folder, checkpoint - 1 if through is None else min(through, checkpoint - 1))


def remove_commits(folder: TableFolder, through: int) -> None:
    """I/O: removes the files of the commits up to *through*, oldest first: a killed call leaves no hole."""
    for name in sorted(folder.names()):
        version = _OF_VERSION.match(name)
        if version is not None and int(version[1]) <= through:
            folder.remove(name)
