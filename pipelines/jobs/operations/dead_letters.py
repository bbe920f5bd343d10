"""Dead letters: noted by silver, listed, replayed from the source, purged."""

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
from pipelines.jobs.capture.oversize_events import land_reread
from pipelines.jobs.context import JobContext
from pipelines.jobs.selection import selection_of
from pipelines.jobs.source_connection import connection_options
from pipelines.model.bson import raw as rb
from pipelines.model.timestamps import clock_us, utc
from pipelines.source.client import Collection, open_client
from pipelines.source.document_reread import read_again

LISTED = ("id", "status", "stage", "class", "db", "collection", "key", "attempts", "at", "message")


@dataclass(frozen=True)
class Replayed:
    """One dead letter after a replay."""

    id: str
    status: str
    """``replayed``: its document was read again and landed; ``gone``: the source has it no more, which the stream tells, or only under a
    name that is not captured."""


def list_dead_letters(ctx: JobContext, *, status: str | None = None, limit: int = 1000) -> list[dict[str, Any]]:
    """I/O: the newest ones without their bytes."""
    rows = DeadLetters(ctx.tables).read(ctx.settings.source.name)
    if status is not None:
        rows = rows.where(F.col("status") == status)
    return [row.asDict() for row in rows.orderBy(F.col("at").desc(), "id").select(*LISTED).limit(limit).collect()]


def show_dead_letter(ctx: JobContext, identifier: str, *, values: bool = False) -> dict[str, Any]:
    """I/O: all of one.

    Args:
        values: Show the document too, as far as JSON can.

    Raises:
        ConfigurationError: There is none of this id.
    """
    rows = DeadLetters(ctx.tables).read(ctx.settings.source.name).where(F.col("id") == identifier).collect()
    if not rows:
        raise ConfigurationError(f"there is no dead letter {identifier!r}", next_step="strandline dead-letters list")
    record = rows[0].asDict()
    raw = bytes(record.pop("raw"))
    record["bytes"] = len(raw)
    if values:
        record["document"] = _shown(raw)
    return record


def _shown(raw: bytes) -> str:
    try:
        return rb.canonical_json(raw)
    except ValueError:  # what cannot be shown as JSON is shown as bytes
        return raw.hex()


def replay(ctx: JobContext, identifiers: Sequence[str] = ()) -> list[Replayed]:
    """I/O: reads each open letter's document from the source as it is now; lands it as a READ, which contains every change up to it;
    marks the letter. In this order: a crash in between only reads one document twice, and the larger position wins.

    Args:
        identifiers: Only these; default: all that are open.

    Raises:
        RetriableError, ConfigurationError: The source cannot be read; the letters that were not reached stay open.
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
            again = None if identifier is None else read_again(client, collection, identifier, selection)
            if again is not None:
                land_reread(writer, again)
            status: Any = "gone" if again is None else "replayed"
            letters.resolve(row["id"], status, datetime.now(UTC))
            done.append(Replayed(row["id"], status))
    return done


def _identifier(row: Row) -> tuple[int, bytes] | None:
    """Type and bytes of the `_id`: in the document, or in an event's key."""
    raw = bytes(row["raw"])
    key = rb.field(raw, b"documentKey") if row["stage"] == "read" else (rb.DOCUMENT, 0, 0)
    found = None if key is None else rb.field(raw, b"_id", key[1])
    return None if found is None else (found[0], raw[found[1] : found[2]])


def purge(ctx: JobContext, *, before: datetime | None = None, everything: bool = False) -> int:
    """I/O: deletes letters of this source that are replayed or gone; open ones only if asked for. Returns how many.

    Args:
        before: Only those that were noted earlier.
        everything: Open ones, too.
    """
    return DeadLetters(ctx.tables).purge(ctx.settings.source.name, before=before, everything=everything)


def error_metrics(ctx: JobContext) -> dict[str, Any]:
    """I/O: KIP-298's metrics, as far as the table tells them, under their names; of all runs together."""
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
