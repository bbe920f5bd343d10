"""Gaps in bronze. A gap is a ``gap`` row that ends a batch, and a table property that silver reads."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, Literal

from strandline.bronze.envelope import Note
from strandline.bronze.offsets import Committed, newest_ends
from strandline.bronze.writer import BronzeWriter
from strandline.io.tables.table_store import TableStore
from strandline.model.gap import GAPS_PROPERTY, Gap, gaps_json, gaps_of
from strandline.model.namespaces import Namespace
from strandline.model.position import cluster_time_hex, snapshot_position
from strandline.model.query import Query
from strandline.model.resume_token import ResumeToken
from strandline.model.table_schemas import DOCUMENT_OPS
from strandline.model.tables import TableName

GapKind = Literal["altered", "heal", "restart_at_oldest", "reset"]
_LOST: Final[tuple[GapKind, ...]] = ("heal", "restart_at_oldest")
_ENDS_LOOKED_AT: Final = 100


def commit_gap(
    writer: BronzeWriter,
    last: Committed,
    kind: GapKind,
    *,
    to_token: str,
    present: tuple[int, int],
    snapshot_id: str | None,
    apart: Iterable[str] = (),
    **details: Any,
) -> Committed:
    """I/O: two commits. The second one moves the offset past the gap.

    Args:
        to_token: Resume token after the gap.
        present: Operation time of the source. The gap ends at or before it.
        snapshot_id: Snapshot that heals the gap, or that is running.
        apart: Collections that no snapshot reads by itself. Each has the gap as its own, too.
        details: More content of the row, such as who requested it and why.

    Effects on failure:
        After the first commit alone patches wait longer than they need; calling again is safe.
    """
    gap = commit_beginning(writer, present, apart)
    content = {"from": last.resume_token, "to": to_token, "after": gap.after, "before": gap.before, **details}
    note = Note("gap", kind, json.dumps(content, default=str))
    return writer.commit_note(note, batch=last.batch + 1, resume_token=to_token, snapshot_id=snapshot_id)


def commit_absence(writer: BronzeWriter, collections: Collection[Namespace], present: tuple[int, int]) -> None:
    """I/O: one commit that records a gap until *present* for each of *collections* that bronze knows.

    They were not captured completely until now. Call this before their first event is committed. Repeating is safe.
    """
    before = snapshot_position(*present)
    gaps = [Gap(newest, before, str(collection)) for collection, newest in newest_of(writer, collections).items()]
    if gaps:
        _remember(writer, gaps)


def newest_of(writer: BronzeWriter, collections: Collection[Namespace]) -> dict[Namespace, str]:
    """I/O: largest position of a document in bronze, for each of *collections* that bronze knows."""
    if not collections:
        return {}
    names = {collection.collection for collection in collections}
    rows = Query(writer.table).where(("op", "in", DOCUMENT_OPS), ("collection", "in", names))
    newest = writer.tables.query(rows.group("db", "collection").aggregate(newest=("max", "position")))
    positions = {Namespace(row["db"], row["collection"]): str(row["newest"]) for row in newest}
    return {collection: positions[collection] for collection in collections if collection in positions}


def commit_starts(writer: BronzeWriter, starts: Mapping[str, str]) -> None:
    """I/O: one commit records, for collections without a first snapshot, the gap before their start.

    Call this before their first event is committed. Repeating is safe: of two starts of a collection the later counts.

    Args:
        starts: Position at which each collection (``database.collection``) begins.
    """
    recorded = gaps_of(writer.tables.properties(writer.table))
    earlier = {str(gap.collection): gap.before for gap in recorded if gap.is_start and gap.collection in starts}
    others = [gap for gap in recorded if not (gap.is_start and gap.collection in starts)]
    own = [Gap("", max(before, earlier.get(name, "")), name) for name, before in starts.items()]
    if own:
        _store(writer, (*others, *own))


def commit_hiding(writer: BronzeWriter, hides: bool, present: tuple[int, int]) -> None:
    """I/O: one commit opens a gap when a user's stages begin to hide changes, or closes it when they stop.

    Call this before the first event of the new stages is committed. Repeating is safe.

    Args:
        hides: True if the stages of this run may hide a change, or a part of one.
        present: Operation time of the source, at which an open gap ends.
    """
    gaps = gaps_of(writer.tables.properties(writer.table))
    if hides and not any(gap.is_open for gap in gaps):
        _remember(writer, [Gap.open_from(newest_position(writer.tables, writer.table))])
    elif not hides and any(gap.is_open for gap in gaps):
        _store(writer, [gap.closed(snapshot_position(*present)) if gap.is_open else gap for gap in gaps])


def commit_beginning(writer: BronzeWriter, begins: tuple[int, int], apart: Iterable[str] = ()) -> Gap:
    """I/O: one commit records the gap between bronze's newest event and *begins*, where a stream starts. Returns it.

    No commit if the stream starts earlier. Call this before the first event is committed. Repeating is safe.

    Args:
        apart: As of `commit_gap`.
    """
    gap = Gap(newest_position(writer.tables, writer.table), snapshot_position(*begins))
    if gap.after < gap.before:
        _remember(writer, [gap, *(replace(gap, collection=name) for name in apart)])
    return gap


def commit_way_back(writer: BronzeWriter, begins: tuple[int, int] | None, *, to_token: str, batch: int) -> None:
    """I/O: one commit records a gap before *batch* moves the position back to before everything that was streamed.

    The range between is a gap until it is captured. No commit if *batch* does not go back so far. Repeating is safe.

    Args:
        begins: Cluster time at which the stream will start. None: unknown.
    """
    (row,) = writer.tables.query(_streamed(writer.table).aggregate(oldest=("min", "position")))
    oldest = row["oldest"]
    if oldest is None or ResumeToken.parse(to_token).data >= oldest.rpartition(":")[2]:
        return
    gap = Gap("" if begins is None else cluster_time_hex(*begins), oldest, again_from=batch)
    _store(writer, (*gaps_of(writer.tables.properties(writer.table)), gap))


def standing_gaps(tables: TableStore, bronze: TableName, version: int | None = None) -> tuple[Gap, ...]:
    """I/O: gaps of a *version* (default: the newest), without those that a rewind has captured by then.

    Each gap of a rewind takes one short job.
    """
    return tuple(gap for gap in gaps_of(tables.properties(bronze)) if not _is_captured(tables, bronze, gap, version))


def _is_captured(tables: TableStore, bronze: TableName, gap: Gap, version: int | None = None) -> bool:
    if gap.again_from is None:
        return False
    at_its_end = Query(bronze, version=version).where(("batch", ">", gap.again_from), ("position", ">=", gap.before))
    return bool(tables.query(at_its_end.select("batch").limit(1)))


def _remember(writer: BronzeWriter, gaps: Sequence[Gap]) -> None:
    """Drop unfinished rewinds: the new gap replaces them. Finished ones stay, for readers of older versions."""
    recorded_gaps = gaps_of(writer.tables.properties(writer.table))
    earlier = (
        gap if _is_captured(writer.tables, writer.table, gap) else replace(gap, again_from=None)
        for gap in recorded_gaps
    )
    _store(writer, (*earlier, *gaps))


def _store(writer: BronzeWriter, gaps: Sequence[Gap]) -> None:
    writer.tables.set_properties(writer.table, {GAPS_PROPERTY: gaps_json(gaps)})


def consecutive_losses(writer: BronzeWriter) -> int:
    """I/O: number of consecutive losses of history, up to now."""
    return losses_in_a_row(newest_ends(writer.tables, writer.table, _ENDS_LOOKED_AT))


def losses_in_a_row(newest_first: Sequence[Mapping[str, Any]]) -> int:
    """Count the newest consecutive gaps of lost history among rows that end batches. Pure.

    The count ends at a batch that moved the token or completed a snapshot, and at a change of the offset.
    """
    lost = 0
    for end, before in pairwise(newest_first):
        if end["op"] == "gap" and end["operation_type"] in _LOST:
            lost += 1
            continue
        moved = end["op"] in ("gap", "offset") or end["resume_token"] != before["resume_token"]
        if moved or (end["snapshot_id"] is None and before["snapshot_id"] is not None):
            break
    return lost


def newest_position(tables: TableStore, bronze: TableName) -> str:
    """I/O: largest streamed position. Empty: nothing was streamed yet."""
    (row,) = tables.query(_streamed(bronze).aggregate(newest=("max", "position")))
    return str(row["newest"] or "")


def _streamed(bronze: TableName) -> Query:
    return Query(bronze).where(("batch", "is not null", None))
