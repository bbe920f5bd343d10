"""The committed position: the row that ends the highest batch of the newest epoch. The only offset store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from strandline.io.tables.table_store import TableStore
from strandline.model.horizon import Horizon
from strandline.model.query import Query
from strandline.model.tables import TableName

_RECENT_BATCHES: Final = (1_000, 100_000)
_ENDS_AT_ONCE: Final = 50_000


@dataclass(frozen=True)
class Committed:
    """The end of the last committed batch."""

    batch: int
    resume_token: str | None
    """None after a reset: the next capture starts at now."""
    snapshot_id: str | None
    """Snapshot that was still running. None: no snapshot ran."""
    epoch: int = 1
    last_event: str | None = None
    """Cluster time of the last event before the token, in hex. None: unknown."""


@dataclass(frozen=True)
class CommittedBatch:
    """The end of one batch in bronze."""

    batch: int
    epoch: int
    at: datetime
    """Capture time, UTC."""
    kind: str
    """``events``, ``heartbeat``, ``gap``, or a change of the offset: ``alter``, ``reset``, ``restored``."""
    resume_token: str | None
    note: str | None
    """Details of a control row, as JSON. None: no control row."""
    writer: str


def ends(bronze: TableName, version: int | None = None) -> Query:
    """Return a query of the bronze rows that end a batch."""
    return Query(bronze, version=version).where_any(("resume_token", "is not null", None), ("op", "=", "offset"))


def committed(tables: TableStore, bronze: TableName, *, version: int | None = None) -> Committed | None:
    """I/O: reads file statistics of *bronze*, and the files of the newest batch. None before the first batch.

    Old versions and the change feed are not read, because Delta shows both for a limited time only. The newest batch
    nearly always belongs to the newest epoch. After a RESTORE an older epoch may have a larger batch. Then all ends
    of the newest epoch are read.

    Args:
        version: Version of the table to read. Default: the newest.

    Raises:
        VersionGone: Delta no longer shows *version*.
    """
    # Answered from statistics, without opening a file.
    bounds = Query(bronze, version=version).aggregate(batch=("max", "batch"), epoch=("max", "epoch"))
    (newest,) = tables.query(bounds)
    if newest["batch"] is None:
        return None
    epoch, rows, last = newest["epoch"] or 1, ends(bronze, version), None
    among = (rows.where(("batch", "=", newest["batch"])), rows.where(("epoch", "=", epoch)), rows)
    for newest_rows in (tables.query(_newest_first(query).limit(1)) for query in among):
        last = _as_committed(newest_rows[0]) if newest_rows else last
        if last is not None and last.epoch == epoch:
            break
    return last


def has_rows(tables: TableStore, bronze: TableName) -> bool:
    """I/O: returns True if *bronze* has a row."""
    return bool(tables.query(Query(bronze).select("op").limit(1)))


def newest_times(tables: TableStore, bronze: TableName, last: Committed) -> tuple[datetime | None, datetime | None]:
    """I/O: cluster time of the newest streamed event, and capture time of the newest batch, both UTC.

    Reads the newest batches first. Reads older ones only if the newest hold no event.
    """
    rows = Query(bronze).aggregate(event=("max", "cluster_time"), captured=("max", "captured_at"))
    newest: dict[str, Any] = {}
    for batches in (*_RECENT_BATCHES, last.batch):
        (newest,) = tables.query(rows.where(("batch", ">", last.batch - batches)))
        if newest["event"] is not None:
            break
    return newest["event"], newest["captured"]


def history(tables: TableStore, bronze: TableName, limit: int) -> list[CommittedBatch]:
    """I/O: ends of the newest *limit* batches, newest first."""
    return [_committed_batch(row) for row in newest_ends(tables, bronze, limit)]


def newest_ends(tables: TableStore, bronze: TableName, limit: int) -> list[dict[str, Any]]:
    """I/O: rows that end the newest *limit* batches, newest first."""
    return tables.query(_newest_first(ends(bronze)).select("op", "operation_type", "after", *_TIMES).limit(limit))


def last_token(tables: TableStore, bronze: TableName) -> str | None:
    """I/O: last streamed resume token, also after a reset. None: nothing was streamed. Reads all ends."""
    rows = tables.query(_newest_first(Query(bronze).where(("resume_token", "is not null", None))).limit(1))
    return str(rows[0]["resume_token"]) if rows else None


def last_before_hole(tables: TableStore, bronze: TableName) -> Committed | None:
    """I/O: last batch before a hole, which a RESTORE under a running capture may have left. None: no first batch.

    Reads all ends. A compaction has removed ends up to a known batch.
    """
    horizon = Horizon.of(tables.properties(bronze))
    after = 0 if horizon is None else horizon.batch
    return whole_through(_ends_after(tables, bronze, after), after)


def _ends_after(tables: TableStore, bronze: TableName, after: int) -> Iterator[Committed]:
    """Yield the ends above batch *after*, sorted by batch, then by epoch, up to the first page without one."""
    rows = ends(bronze).select(*_FIELDS).order("batch", "epoch")
    while page := tables.query(rows.where(("batch", ">", after), ("batch", "<=", after + _ENDS_AT_ONCE))):
        yield from map(_as_committed, page)
        after += _ENDS_AT_ONCE


def whole_through(batch_ends: Iterable[Committed], after: int = 0) -> Committed | None:
    """Return the last end without a hole before it. Pure.

    Args:
        batch_ends: Ends above batch *after*, sorted by batch, then by epoch. An epoch may have committed batches after
            the hole before it was fenced. They have the same numbers as batches of the next epoch.
        after: Number of the batch before the first one.
    """
    last: Committed | None = None
    for end in batch_ends:
        if last is not None and end.epoch < last.epoch:
            continue
        if end.batch > (last.batch if last is not None else after) + 1:
            break
        last = end
    return last


_FIELDS: Final = ("batch", "resume_token", "snapshot_id", "epoch", "last_event")
_TIMES: Final = ("captured_at", "writer")


def _newest_first(rows: Query) -> Query:
    """Return the query with the fields of `Committed`, newest first. Rows of the first epoch may lack its number."""
    return rows.select(*_FIELDS).order("-epoch", "-batch")


def _as_committed(row: dict[str, Any]) -> Committed:
    return Committed(row["batch"], row["resume_token"], row["snapshot_id"], row["epoch"], row["last_event"])


def _committed_batch(row: dict[str, Any]) -> CommittedBatch:
    control = row["op"] in ("heartbeat", "offset", "gap")
    kind = (row["operation_type"] if row["op"] == "offset" else row["op"]) if control else "events"
    return CommittedBatch(
        row["batch"],
        row["epoch"],
        row["captured_at"],
        kind,
        row["resume_token"],
        row["after"] if control else None,
        row["writer"],
    )
