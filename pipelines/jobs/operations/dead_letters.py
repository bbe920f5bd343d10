"""Dead letters: list, show, replay from the source, purge, count."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Row
from pyspark.sql import functions as F

from pipelines.bronze.appender import BronzeAppender
from pipelines.control.dead_letters import DeadLetters
from pipelines.errors import ConfigurationError
from pipelines.jobs.capture.oversize_events import append_reread
from pipelines.jobs.context import JobContext
from pipelines.jobs.selection import selection_of
from pipelines.jobs.source_connection import connection_options
from pipelines.model.bson import raw as rb
from pipelines.model.timestamps import clock_us, utc
from pipelines.source.client import Collection, open_client
from pipelines.source.document_reread import reread_document

LISTED_COLUMNS = ("id", "status", "stage", "class", "db", "collection", "key", "attempts", "at", "message")


@dataclass(frozen=True)
class ReplayResult:
    """Result of the replay of one dead letter."""

    id: str
    status: str
    """``replayed``: the document was read again and appended to bronze. ``gone``: no captured collection has it."""


def list_dead_letters(ctx: JobContext, *, status: str | None = None, limit: int = 1000) -> list[dict[str, Any]]:
    """Return the newest *limit* dead letters without their documents, newest first.

    I/O: reads ``control.dead_letters``.

    Args:
        ctx: The pipeline.
        status: Only letters with this status; None: all.
        limit: Maximum number of letters.
    """
    rows = DeadLetters(ctx.tables).read(ctx.settings.source.name)
    if status is not None:
        rows = rows.where(F.col("status") == status)
    return [
        row.asDict() for row in rows.orderBy(F.col("at").desc(), "id").select(*LISTED_COLUMNS).limit(limit).collect()
    ]


def show_dead_letter(ctx: JobContext, identifier: str, *, values: bool = False) -> dict[str, Any]:
    """Return all columns of one dead letter. I/O: reads ``control.dead_letters``.

    Args:
        ctx: The pipeline.
        identifier: Id of the dead letter.
        values: Include the document as Extended JSON, or in hex if JSON cannot represent it.

    Raises:
        ConfigurationError: There is no dead letter with this id.
    """
    rows = DeadLetters(ctx.tables).read(ctx.settings.source.name).where(F.col("id") == identifier).collect()
    if not rows:
        raise ConfigurationError(f"there is no dead letter {identifier!r}", next_step="strandline dead-letters list")
    record = rows[0].asDict()
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


def replay(ctx: JobContext, identifiers: Sequence[str] = ()) -> list[ReplayResult]:
    """Read the documents of open dead letters again from the source.

    I/O, for each letter: reads the current document; appends it to bronze as a READ, which contains all earlier
    changes; then marks the letter.

    Args:
        ctx: The pipeline.
        identifiers: Ids of the letters; empty: all open letters.

    Raises:
        RetriableError, ConfigurationError: The source cannot be read.

    Effects on failure:
        Letters that were not reached stay open. Calling again is safe: it may read one document twice, and the larger
        position wins.
    """
    letters = DeadLetters(ctx.tables)
    rows = letters.read(ctx.settings.source.name).where(F.col("status") == "open")
    if identifiers:
        rows = rows.where(F.col("id").isin(*identifiers))
    done = []
    settings = ctx.settings.capture
    writer = BronzeAppender(
        ctx.tables, ctx.settings.source.name, uuid.uuid4().hex, clock_us, stored_json=settings.json_columns == "stored"
    )
    selection = selection_of(settings)
    with closing(open_client(connection_options(ctx.settings), raw=True)) as client:
        for row in rows.collect():
            collection = Collection(row["db"], row["collection"], row["collection_uuid"])
            identifier = _identifier(row)
            again = None if identifier is None else reread_document(client, collection, identifier, selection)
            if again is not None:
                append_reread(writer, again)
            status: Any = "gone" if again is None else "replayed"
            letters.resolve(row["id"], status, datetime.now(UTC))
            done.append(ReplayResult(row["id"], status))
    return done


def _identifier(row: Row) -> tuple[int, bytes] | None:
    """Return BSON type and bytes of the `_id`, from the document or from the event's key; None: there is none."""
    raw = bytes(row["raw"])
    key = rb.field(raw, b"documentKey") if row["stage"] == "read" else (rb.DOCUMENT, 0, 0)
    found = None if key is None else rb.field(raw, b"_id", key[1])
    return None if found is None else (found[0], raw[found[1] : found[2]])


def purge(ctx: JobContext, *, before: datetime | None = None, everything: bool = False) -> int:
    """Delete the replayed and gone dead letters of this source. Return the number of deleted letters.

    I/O: writes ``control.dead_letters``.

    Args:
        ctx: The pipeline.
        before: Delete only letters that were recorded before this time; None: no limit.
        everything: Also delete open letters.
    """
    return DeadLetters(ctx.tables).purge(ctx.settings.source.name, before=before, everything=everything)


def error_metrics(ctx: JobContext) -> dict[str, Any]:
    """Return error metrics under their KIP-298 names, as totals over all runs. I/O: reads ``control.dead_letters``."""
    oversize = F.col("stage") == "read"
    totals = (
        DeadLetters(ctx.tables)
        .read(ctx.settings.source.name)
        .agg(
            F.coalesce(F.sum("attempts"), F.lit(0)).alias("total-record-failures"),
            F.count_if(oversize).alias("total-records-skipped"),
            F.coalesce(F.sum(F.col("attempts") - 1), F.lit(0)).alias("total-retries"),
            F.count("id").alias("deadletterqueue-records-produced"),
            F.max("at").alias("last-failure-timestamp"),
        )
        .first()
    )
    assert totals is not None  # an aggregate has one row
    last = totals["last-failure-timestamp"]
    return totals.asDict() | {"last-failure-timestamp": utc(last)}
