"""Dead letters: list, show, purge, count."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from strandline.control.dead_letters import DeadLetters
from strandline.control.notifications import failed_runs
from strandline.errors import ConfigurationError
from strandline.jobs.lake_context import LakeContext
from strandline.model.bson import raw as rb
from strandline.model.query import Query
from strandline.model.table_schemas import DEAD_LETTERS

LISTED_COLUMNS = ("id", "status", "stage", "class", "db", "collection", "key", "attempts", "at", "message")


def list_dead_letters(ctx: LakeContext, *, status: str | None = None, limit: int = 1000) -> list[dict[str, Any]]:
    """Return the newest *limit* dead letters without their documents, newest first.

    I/O: reads ``control.dead_letters``.

    Args:
        ctx: The pipeline.
        status: Only letters with this status; None: all.
        limit: Maximum number of letters.
    """
    newest_first = Query(DEAD_LETTERS).select(*LISTED_COLUMNS).order("-at", "id").limit(limit)
    conditions = [] if status is None else [("status", "=", status)]
    return DeadLetters(ctx.tables).select(ctx.settings.source.name, newest_first, *conditions)


def show_dead_letter(ctx: LakeContext, identifier: str, *, values: bool = False) -> dict[str, Any]:
    """Return all columns of one dead letter. I/O: reads ``control.dead_letters``.

    Args:
        ctx: The pipeline.
        identifier: Id of the dead letter.
        values: Include the document as Extended JSON, or in hex if JSON cannot represent it.

    Raises:
        ConfigurationError: There is no dead letter with this id.
    """
    record = DeadLetters(ctx.tables).find(ctx.settings.source.name, identifier)
    if record is None:
        raise ConfigurationError(f"there is no dead letter {identifier!r}", next_step="strandline dead-letters list")
    raw = bytes(record.pop("raw"))
    record["bytes"] = len(raw)
    if values:
        record["document"] = _document_text(raw)
    return record


def _document_text(raw: bytes) -> str:
    try:
        return rb.canonical_json(raw)
    except ValueError:  # JSON cannot represent the document
        return raw.hex()


def purge(ctx: LakeContext, *, before: datetime | None = None, everything: bool = False) -> int:
    """Delete the replayed and gone dead letters of this source. Return the number of deleted letters.

    I/O: writes ``control.dead_letters``.

    Args:
        ctx: The pipeline.
        before: Delete only letters that were recorded before this time; None: no limit.
        everything: Also delete open letters.
    """
    return DeadLetters(ctx.tables).purge(ctx.settings.source.name, before=before, everything=everything)


def error_metrics(ctx: LakeContext) -> dict[str, Any]:
    """Return error metrics under their KIP-298 names, as totals over all runs.

    I/O: reads ``control.dead_letters`` and ``control.notifications``.
    """
    counts = Query(DEAD_LETTERS).group("stage")
    counts = counts.aggregate(letters=("count", "id"), attempts=("sum", "attempts"), last=("max", "at"))
    stages = DeadLetters(ctx.tables).select(ctx.settings.source.name, counts)
    letters, attempts = sum(row["letters"] for row in stages), sum(row["attempts"] for row in stages)
    ended, last_end = failed_runs(ctx.tables, ctx.settings.source.name)
    newest = [row["last"] for row in stages] + ([last_end] if last_end is not None else [])
    return {
        "total-record-failures": attempts + ended,
        "total-records-skipped": sum(row["letters"] for row in stages if row["stage"] == "read"),
        "total-retries": attempts - letters,
        "deadletterqueue-records-produced": letters,
        "last-failure-timestamp": max(newest, default=None),
    }
