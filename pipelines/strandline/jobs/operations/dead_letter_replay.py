"""Replay of dead letters: read their documents again from the source."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from strandline.bronze.appender import BronzeAppender
from strandline.control.dead_letters import DeadLetters
from strandline.jobs.capture.oversize_events import append_reread
from strandline.jobs.lake_context import LakeContext
from strandline.jobs.selection import selection_of
from strandline.jobs.source_connection import connection_options
from strandline.model.bson import raw as rb
from strandline.model.query import Condition, Query
from strandline.model.table_schemas import DEAD_LETTERS
from strandline.model.timestamps import clock_us
from strandline.source.client import Collection, open_client
from strandline.source.document_reread import reread_document


@dataclass(frozen=True)
class ReplayResult:
    """Result of the replay of one dead letter."""

    id: str
    status: str
    """``replayed``: the document was read again and appended to bronze. ``gone``: no captured collection has it."""


def replay(ctx: LakeContext, identifiers: Sequence[str] = ()) -> list[ReplayResult]:
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
    ctx = ctx.for_capture()
    letters = DeadLetters(ctx.tables)
    chosen: list[Condition] = [("status", "=", "open"), *([("id", "in", identifiers)] if identifiers else [])]
    columns = Query(DEAD_LETTERS).select("id", "stage", "db", "collection", "collection_uuid", "raw")
    results = []
    settings = ctx.settings.capture
    writer = BronzeAppender(
        ctx.tables, ctx.settings.source.name, uuid.uuid4().hex, clock_us, stored_json=settings.json_columns == "stored"
    )
    selection = selection_of(settings)
    with closing(open_client(connection_options(ctx.settings), raw=True)) as client:
        for row in letters.select(ctx.settings.source.name, columns, *chosen):
            collection = Collection(row["db"], row["collection"], row["collection_uuid"])
            identifier = _identifier(row)
            again = None if identifier is None else reread_document(client, collection, identifier, selection)
            if again is not None:
                append_reread(writer, again)
            status: Any = "gone" if again is None else "replayed"
            letters.resolve(row["id"], status, datetime.now(UTC))
            results.append(ReplayResult(row["id"], status))
    return results


def _identifier(row: dict[str, Any]) -> tuple[int, bytes] | None:
    """Return BSON type and bytes of the `_id`, from the document or from the event's key; None: there is none."""
    raw = bytes(row["raw"])
    key = rb.field(raw, b"documentKey") if row["stage"] == "read" else (rb.DOCUMENT, 0, 0)
    identifier = None if key is None else rb.field(raw, b"_id", key[1])
    return None if identifier is None else (identifier[0], raw[identifier[1] : identifier[2]])
