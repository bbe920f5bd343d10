"""Checks of the lake. Pure: each takes facts, and returns findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from strandline.control.sources import SourceState
from strandline.errors import ConfigurationError
from strandline.jobs.doctor.catalogue import CHECKS
from strandline.jobs.doctor.findings import Finding
from strandline.model.lake_format import FORMAT
from strandline.settings.maintenance import MaintenanceSettings
from strandline.source.oplog import OplogWindow

_MANY_FILES: Final = 500
_SMALL_BYTES: Final = 8_000_000
_LISTED: Final = 3
_LEAST_FREE_BYTES: Final = 5_000_000_000
_LEAST_FREE_SHARE: Final = 0.05
_MAINTENANCE_DAYS: Final = 7
_GB: Final = 1_000_000_000


@dataclass(frozen=True)
class TableFiles:
    """Data files of one table."""

    table: str
    files: int
    bytes: int


def bronze(exists: bool, state: SourceState) -> Finding:
    check = CHECKS["lake.bronze"]
    if state.state in ("stopped", "paused", "deleted"):
        return check.warning(
            f"the source is {state.state}, set by {state.by}",
            fix="strandline resume" if state.state == "paused" else "strandline start",
        )
    return check.ok("there" if exists else "not there yet")


def transactions(problem: str | None) -> Finding:
    """Return the finding for the output of `forgets_transactions`."""
    check = CHECKS["lake.transactions"]
    return check.ok("for ever") if problem is None else check.warning(problem)


def lake_format(refusals: Sequence[ConfigurationError]) -> Finding:
    """Return the finding for the output of `other_formats`."""
    check = CHECKS["lake.format"]
    if not refusals:
        return check.ok(str(FORMAT))
    return check.error("; ".join(str(refusal.args[0]) for refusal in refusals[:_LISTED]), fix=refusals[0].next_step)


def writers_of_folder(*, has_links: bool) -> Finding:
    """Return the finding for a folder of this machine, in which delta-rs commits by hard links."""
    check = CHECKS["lake.log_store"]
    if has_links:
        return check.ok("the file system has hard links, by which a commit replaces no other")
    return check.info("the file system has no hard links: Spark writes bronze")


def space(free: int, total: int) -> Finding:
    check = CHECKS["lake.space"]
    text = f"{free / _GB:,.1f} GB of {total / _GB:,.0f} GB are free"
    is_scarce = free < _LEAST_FREE_BYTES or free < total * _LEAST_FREE_SHARE
    return check.warning(text) if is_scarce else check.ok(text)


def files(tables: Sequence[TableFiles]) -> Finding:
    """Return the finding for the tables whose data files are many and small."""
    check = CHECKS["lake.files"]
    small = [each for each in tables if each.files >= _MANY_FILES and each.bytes / each.files < _SMALL_BYTES]
    if not small:
        return check.ok(f"{len(tables)} tables, {sum(each.files for each in tables):,} data files")
    small.sort(key=lambda each: each.files, reverse=True)
    named = [f"{each.table} has {each.files:,} of {each.bytes / each.files / 1e6:.1f} MB" for each in small[:_LISTED]]
    more = f", and {len(small) - _LISTED} tables more" if len(small) > _LISTED else ""
    return check.warning(f"many small files: {', '.join(named)}{more}")


def maintenance(ended: datetime | None, now: datetime, *, is_new: bool) -> Finding:
    """Return the finding for the end of the newest maintenance.

    Args:
        ended: None: there was none.
        is_new: True: nothing was captured yet.
    """
    check = CHECKS["lake.maintenance"]
    if ended is None:
        return check.ok("nothing to maintain yet") if is_new else check.info("it has not run yet", fix=check.fix)
    days = (now - ended).total_seconds() / 86_400
    text = f"ended {days:,.1f} days ago"
    return check.warning(text) if days > _MAINTENANCE_DAYS else check.ok(text)


def retention(settings: MaintenanceSettings, window: OplogWindow | None) -> Finding:
    """Return the finding for the retention of logs against the time that capture may be away.

    Args:
        window: The oplog's window. None: the source was not asked.
    """
    check, kept = CHECKS["lake.retention"], settings.log_retention_hours or settings.retention_hours
    oldest = None if window is None else window.oldest
    if window is None or oldest is None:
        return check.ok(
            f"logs are kept for {kept:,} hours, for readers that are away up to {settings.max_downtime_hours:,}"
        )
    covered = (window.present - oldest) / 3600
    text = f"logs are kept for {kept:,} hours, and the oplog lets capture be away for {covered:,.0f}"
    return check.info(text, fix=check.fix) if kept < covered else check.ok(text)


def columns(notes: Sequence[str]) -> Iterator[Finding]:
    check = CHECKS["lake.columns"]
    if not notes:
        yield check.ok("no field name forces column mapping upon a portable table")
    yield from (check.info(note, fix=check.fix) for note in notes)


def catalog(name: str, schemas: Sequence[str], *, has_views: bool | None) -> Finding:
    """Return the finding for a catalog.

    Args:
        schemas: Layers whose schemas are there.
        has_views: None: there is no schema to ask for views yet.
    """
    check = CHECKS["lake.catalog"]
    there = f"{name}: schemas of {', '.join(schemas)}" if schemas else f"{name}: no schema yet"
    if has_views is False:
        return check.info(f"{there}; it lists no views", fix=check.fix)
    return check.ok(there if has_views is None else f"{there}; it lists views")
