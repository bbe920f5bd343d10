"""Control rows of a snapshot in bronze: its plan, finished chunks, pauses and end."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime

from strandline.bronze.chunk_rows import ChunkStamp, manifest_table
from strandline.bronze.manifest_rows import control_rows, manifest_row
from strandline.bronze.writer import BronzeWriter
from strandline.io.delta_log.append_result import Appended
from strandline.jobs.snapshot.plan import Plan, is_paused
from strandline.source.client import Collection


@dataclass(frozen=True)
class StoredSnapshot:
    """State of a snapshot, as its control rows describe it."""

    plan: Plan
    finished_chunks: dict[int, int]
    """Finished chunks: chunk number → number of documents."""
    paused: bool
    ended: bool
    """True: the completion row is committed."""
    history: list[tuple[str, datetime]]
    """``operation_type`` and time of the control rows, oldest first."""


def read_control_rows(writer: BronzeWriter, snapshot_id: str) -> StoredSnapshot | None:
    """Return the stored state of a snapshot. None: it has no plan yet.

    I/O: reads bronze.
    """
    rows = control_rows(writer.table).where(("snapshot_id", "=", snapshot_id))
    records = writer.tables.query(rows.select("operation_type", "chunk", "after", "captured_at").order("captured_at"))
    plans = [row["after"] for row in records if row["operation_type"] == "plan"]
    if not plans:
        return None
    finished = [row for row in records if row["operation_type"] in ("chunk", "discarded")]
    row_types = [row["operation_type"] for row in records]
    return StoredSnapshot(
        plan=Plan.from_json(plans[0]),
        finished_chunks={row["chunk"]: int(json.loads(row["after"]).get("documents", 0)) for row in finished},
        paused=is_paused(row_types),
        ended="completed" in row_types,
        history=[(row["operation_type"], row["captured_at"]) for row in records],
    )


def append_control_row(
    writer: BronzeWriter,
    snapshot_id: str,
    kind: str,
    number: int,
    content: str,
    app_id: str | None = None,
    collection: Collection | None = None,
) -> bool:
    """Append one control row of a snapshot, exactly once. Return False if another capture of this epoch appended it.

    Args:
        kind: ``operation_type`` of the row.
        number: Chunk number. -1: the snapshot as a whole.
        content: JSON.
        app_id: Application id of the Delta transaction. None: one of the snapshot and *kind*.
        collection: Collection to find the row by. None: none.

    Raises:
        FencedError: The epoch has ended.
        BronzeRestored: A RESTORE removed the row from bronze.
    """
    stamp = ChunkStamp.of_control(writer.stamp(), snapshot_id, number)
    if collection is not None:
        stamp = replace(stamp, db=collection.db, collection=collection.name)
    rows, app_id = manifest_table(stamp, kind, content), app_id or writer.app_id(snapshot_id, kind)
    if isinstance(writer.append_once(rows, app_id=app_id, sequence=max(number, 0)), Appended):
        return True
    kinds = ("chunk", "discarded") if kind == "discarded" else (kind,)
    if manifest_row(writer.tables, writer.table, snapshot_id, number, kinds) is None:
        raise writer.refusal(f"the {kind} row of the snapshot")
    return False
