"""Epochs: sequences of batches with one application id. A reset or a RESTORE ends an epoch and fences its writers.

An epoch ends with a commit of the largest sequence. Delta then skips all later commits of its writers. Each lane of a
snapshot has an application id of its own. Lanes end in the same way, before the stream does.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pyarrow as pa

from strandline.bronze.engine import Engine, TransactionId
from strandline.bronze.envelope import SCHEMA
from strandline.bronze.offsets import ends
from strandline.errors import ContractError
from strandline.io.delta_log.append_result import AlreadyAppended, Appended
from strandline.io.delta_log.commits import Commit
from strandline.io.tables.table_store import TableStore
from strandline.model.query import Query
from strandline.model.tables import TableName

_log = logging.getLogger("strandline.capture")

_LAST_SEQUENCE: Final = 2**62
_OPENED_BY: Final = ("restored", "reset")
_PARTS_OF_STREAM_PROOF: Final = (
    5  # strandline, source, epoch, writer, batch; a chunk's names its snapshot and lane, too
)
_LANES_AT_ONCE: Final = 8

Lane = tuple[str, int]
"""Snapshot id and lane number."""


class BronzeRestored(ContractError):
    """Bronze was restored to an older version. Delta still knows the later transactions and skips their numbers.

    Nothing is lost. The next `BronzeWriter.open` with ``restored=True`` opens a new epoch.
    """


def stream_app_id(source: str, epoch: int) -> str:
    return f"strandline:{source}:{epoch}"


def restored_at(commits: Iterable[Commit]) -> int | None:
    """Return the version of a RESTORE of bronze, if no epoch was opened since. Pure.

    A capture reads all commits between two of its batches, and stops at a RESTORE. So this search ends at the last
    batch but one. If log clean-up removed the RESTORE, the next batch detects it: its number is taken, but the table
    does not hold it (`BronzeRestored`).

    Args:
        commits: Commits of the table, newest first, as far as its log goes back.
    """
    batches = 0
    for commit in commits:
        if commit.operation == "RESTORE":
            return commit.version
        proof = (commit.user_metadata or "").split(":")
        if proof[-1] in _OPENED_BY:
            return None
        batches += len(proof) == _PARTS_OF_STREAM_PROOF and proof[0] == "strandline"
        if batches == 2:
            return None
    return None


def lanes_at_work(
    tables: TableStore, bronze: TableName, epoch: int, *, version: int | None = None, before: int = _LAST_SEQUENCE
) -> set[Lane]:
    """I/O: lanes of incomplete snapshots that batches of *epoch* name. Reads all control rows.

    Args:
        version: Version of the table. Default: the newest.
        before: Read only batches below this number.
    """
    number = [("epoch", "=", epoch), *([("epoch", "is null", None)] if epoch == 1 else [])]
    named = ends(bronze, version).where_any(*number).where(("batch", "<", before), ("snapshot_id", "is not null", None))
    control = Query(bronze, version=version).where(("op", "=", "snapshot"))
    completed = control.where(("operation_type", "=", "completed")).group("snapshot_id")
    snapshots = _ids(tables.query(named.group("snapshot_id"))) - _ids(tables.query(completed))
    if not snapshots:
        return set()
    plans = control.where(("operation_type", "=", "plan"), ("snapshot_id", "in", snapshots))
    return {
        (row["snapshot_id"], lane)
        for row in tables.query(plans.select("snapshot_id", "after"))
        for lane in range(json.loads(row["after"])["lanes"])
    }


def _ids(rows: Iterable[dict[str, Any]]) -> set[str]:
    return {row["snapshot_id"] for row in rows}


def _lanes_before(tables: TableStore, bronze: TableName, epoch: int, restored_at: int) -> set[Lane]:
    """I/O: lanes at work in the version before a RESTORE. Empty if its files are gone."""
    try:
        return lanes_at_work(tables, bronze, epoch, version=restored_at - 1)
    except Exception as error:  # noqa: BLE001  # why: a version that is too old fails with many classes
        _log.warning("version %d of %s cannot be read any more (%s)", restored_at - 1, bronze, type(error).__name__)
        return set()


def end_stream(engine: Engine, rows: pa.Table, *, app_id: str, proof: str) -> Appended | AlreadyAppended:
    """I/O: one commit of *rows* ends the stream of an epoch, even while its writers commit.

    Returns:
        AlreadyAppended: The epoch had ended before.

    Raises:
        RetriableError: A writer was faster at every attempt. Nothing was written.
    """
    return engine.append_beside_writers(rows, TransactionId(app_id, _LAST_SEQUENCE, proof))


def end_epoch_lanes(
    engine: Engine,
    tables: TableStore,
    bronze: TableName,
    *,
    app_id: str,
    epoch: int,
    proof: str,
    restored_at: int | None,
    finished_lanes: Collection[Lane] = (),
) -> set[Lane]:
    """I/O: ends all lanes of *epoch*, so that no chunk of its snapshots is committed any more. Returns the lanes.

    Args:
        restored_at: Version of a RESTORE, which may have removed rows of a snapshot. None: no RESTORE.
        finished_lanes: Lanes that have ended already.
    """
    lanes = lanes_at_work(tables, bronze, epoch)
    if restored_at is not None:
        lanes |= _lanes_before(tables, bronze, epoch, restored_at)
    end_lanes(engine, app_id, proof, lanes.difference(finished_lanes))
    return lanes


def end_lanes(engine: Engine, app_id: str, proof: str, lanes: Collection[Lane]) -> None:
    """I/O: one commit without rows ends each of *lanes*. A chunk that is still being read then fails. Idempotent.

    Args:
        app_id: Application id of the epoch's stream.
    """

    def end(lane: Lane) -> None:
        lane_id = ":".join([app_id, *map(str, lane)])
        engine.append_rows(SCHEMA.empty_table(), TransactionId(lane_id, _LAST_SEQUENCE, f"{lane_id}:{proof}"))

    with ThreadPoolExecutor(_LANES_AT_ONCE, thread_name_prefix="strandline-fence") as pool:
        list(pool.map(end, lanes))
