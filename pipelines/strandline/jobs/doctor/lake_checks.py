"""Checks of the lake. Pure: each takes facts, and returns findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from strandline.control.sources import SourceState
from strandline.errors import ConfigurationError
from strandline.jobs.doctor.findings import Check, Finding, doctor_check
from strandline.model.engines import engines_text
from strandline.model.lake_format import FORMAT
from strandline.model.tables import TableName
from strandline.settings.maintenance import MaintenanceSettings
from strandline.source.oplog import OplogWindow

OPEN: Final = Check(
    "lake.open",
    "The lake can be opened, and where it is",
    why="in a wrong place a new lake would begin",
    fix="correct lake.root or lake.catalog",
)
WRITABLE: Final = Check(
    "lake.writable", "The lake can be written", why="every batch is a commit", fix="correct the rights, or lake.root"
)
_MANY_FILES: Final = 500
_SMALL_BYTES: Final = 8_000_000
_LISTED: Final = 3
_LEAST_FREE_BYTES: Final = 5_000_000_000
_LEAST_FREE_SHARE: Final = 0.05
_MAINTENANCE_DAYS: Final = 7
_GB: Final = 1_000_000_000


@dataclass(frozen=True)
class FileSizes:
    """Data files of one table."""

    table: str
    files: int
    bytes: int


@doctor_check(
    "lake.bronze",
    "Bronze is there, and the state that an operator has set",
    why="a stopped source is not captured, and its position grows old",
    fix="strandline start",
)
def bronze(check: Check, exists: bool, state: SourceState) -> Finding:
    if state.state in ("stopped", "paused", "deleted"):
        return check.warning(
            f"the source is {state.state}, set by {state.by}",
            fix="strandline resume" if state.state == "paused" else "strandline start",
        )
    return check.ok("there" if exists else "not there yet")


@doctor_check(
    "lake.transactions",
    "How long Delta remembers which batches of bronze were committed",
    why="a capture that slept for longer could commit a batch that another one has committed",
    fix="remove the property: ALTER TABLE … UNSET TBLPROPERTIES ('delta.setTransactionRetentionDuration')",
    unknown="warning",
)
def transactions(check: Check, problem: str | None) -> Finding:
    return check.ok("for ever") if problem is None else check.warning(problem)


@doctor_check(
    "lake.format",
    "Format of the tables",
    why="a table of a preview or of a newer release is not read or written",
    fix="strandline explain upgrades",
)
def lake_format(check: Check, refusals: Sequence[ConfigurationError]) -> Finding:
    if not refusals:
        return check.ok(str(FORMAT))
    return check.error("; ".join(str(refusal.args[0]) for refusal in refusals[:_LISTED]), fix=refusals[0].next_step)


@doctor_check(
    "lake.log_store",
    "A second writer cannot replace a commit",
    why="two captures at once must not destroy each other's batches",
    fix="strandline explain runbook: a lake on S3",
    unknown="warning",
)
def writers_of_folder(check: Check, *, has_links: bool) -> Finding:
    if has_links:
        return check.ok("the file system has hard links, by which a commit replaces no other")
    return check.info("the file system has no hard links: Spark writes bronze")


@doctor_check(
    "lake.space",
    "Free space on the disk of a local lake",
    why="a full disk stops capture, and the oplog goes on",
    fix="free space, or run strandline maintain",
    unknown="warning",
)
def space(check: Check, free: int, total: int) -> Finding:
    text = f"{free / _GB:,.1f} GB of {total / _GB:,.0f} GB are free"
    is_scarce = free < _LEAST_FREE_BYTES or free < total * _LEAST_FREE_SHARE
    return check.warning(text) if is_scarce else check.ok(text)


@doctor_check(
    "lake.files",
    "Tables with many small files",
    why="each file costs every reader and every MERGE",
    fix="strandline maintain",
    unknown="warning",
)
def files(check: Check, tables: Sequence[FileSizes]) -> Finding:
    small = [size for size in tables if size.files >= _MANY_FILES and size.bytes / size.files < _SMALL_BYTES]
    if not small:
        return check.ok(f"{len(tables)} tables, {sum(size.files for size in tables):,} data files")
    small.sort(key=lambda size: size.files, reverse=True)
    named = [f"{size.table} has {size.files:,} of {size.bytes / size.files / 1e6:.1f} MB" for size in small[:_LISTED]]
    more = f", and {len(small) - _LISTED} tables more" if len(small) > _LISTED else ""
    return check.warning(f"many small files: {', '.join(named)}{more}")


@doctor_check(
    "lake.maintenance",
    "Time since the last `strandline maintain`",
    why="without it, files, logs and tombstones grow",
    fix="run strandline maintain every day (strandline explain start)",
    unknown="warning",
)
def maintenance(check: Check, ended: datetime | None, now: datetime, *, is_new: bool) -> Finding:
    """Return the finding for the end of the newest maintenance.

    Args:
        ended: None: there was none.
        is_new: True: nothing was captured yet.
    """
    if ended is None:
        return check.ok("nothing to maintain yet") if is_new else check.info("it has not run yet", fix=check.fix)
    days = (now - ended).total_seconds() / 86_400
    text = f"ended {days:,.1f} days ago"
    return check.warning(text) if days > _MAINTENANCE_DAYS else check.ok(text)


@doctor_check(
    "lake.retention",
    "Retention of the logs against the time that capture or silver may be away",
    why="a silver that was away longer than the log of bronze reads all of bronze",
    fix="raise maintenance.log_retention_hours",
)
def retention(check: Check, settings: MaintenanceSettings, window: OplogWindow | None) -> Finding:
    """Return the finding for the retention of logs against the time that capture may be away.

    Args:
        window: The oplog's window. None: the source was not asked.
    """
    hours = settings.log_retention_hours or settings.retention_hours
    oldest = None if window is None else window.oldest
    if window is None or oldest is None:
        return check.ok(
            f"logs are kept for {hours:,} hours, for readers that are away up to {settings.max_downtime_hours:,}"
        )
    covered = (window.present - oldest) / 3600
    text = f"logs are kept for {hours:,} hours, and the oplog lets capture be away for {covered:,.0f}"
    return check.info(text, fix=check.fix) if hours < covered else check.ok(text)


@doctor_check(
    "lake.columns",
    "Silver tables that few readers can read, because of a field's name",
    why="a portable table should be readable by everybody (strandline explain readers)",
    fix="set silver.field_name_adjustment_mode: avro_unicode, then strandline stop, rebuild and start",
    unknown="warning",
)
def columns(check: Check, notes: Sequence[str]) -> Iterator[Finding]:
    if not notes:
        yield check.ok("no field name forces column mapping upon a portable table")
    yield from (check.info(note, fix=check.fix) for note in notes)


@doctor_check(
    "lake.engines",
    "Engine that wrote the newest rows of each layer",
    why="with `engine: spark`, Spark writes every row; else Spark or delta-rs",
    fix="set engine, capture.engine, silver.engine or gold.engine",
    unknown="info",
)
def engines(check: Check, tables: Mapping[TableName, str]) -> Finding:
    """Return the finding for the engines of the newest rows.

    Args:
        tables: Engine by table.
    """
    text = engines_text((table.layer, engine) for table, engine in tables.items())
    return check.ok(text or "no rows yet")


@doctor_check(
    "lake.catalog",
    "What the catalog can do: schemas and views",
    why="without views, there are no live views and gold views are files",
    fix="strandline explain catalogs",
    unknown="warning",
)
def catalog(check: Check, name: str, schemas: Sequence[str], *, has_views: bool | None) -> Finding:
    """Return the finding for a catalog.

    Args:
        schemas: Layers whose schemas are there.
        has_views: None: there is no schema to ask for views yet.
    """
    there = f"{name}: schemas of {', '.join(schemas)}" if schemas else f"{name}: no schema yet"
    if has_views is False:
        return check.info(f"{there}; it lists no views", fix=check.fix)
    return check.ok(there if has_views is None else f"{there}; it lists views")
