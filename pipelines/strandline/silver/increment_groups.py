"""Groups of bronze rows, from which a bronze increment is made: by one Spark job, or of rows in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from strandline.io.delta_log.appended_rows import COMMIT_VERSION
from strandline.io.spark import column_functions as F
from strandline.model.namespaces import NAMESPACE_OPERATIONS
from strandline.model.table_schemas import DOCUMENT_OPS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Group = Mapping[str, Any]
"""Facts of some bronze rows. Several groups may have the same collection.

* ``db``, ``collection``, ``collection_uuid``.
* ``event``: a drop, a rename or a creation (``position``, ``envelope``).
* ``completion``: the end of a snapshot (``snapshot_id``, ``_commit_version``).
* ``first``: smallest position of a row of a document.
* ``newest``: newest event of the stream (``position``, ``txn_number``).
* ``read``: largest position of a READ.
* ``end``: last row of the newest batch (`_END`).

Facts that the rows do not have are null.
"""

_END: Final = ("epoch", "batch", "ends_outside_transaction", "snapshot_id", "resume_token")
_COLLECTION: Final = ("db", "collection", "collection_uuid")
_EMPTY: Final[Mapping[str, Any]] = dict.fromkeys(
    (*_COLLECTION, "event", "completion", "first", "newest", "read", "end")
)


def groups_by_spark(rows: DataFrame) -> list[Group]:
    """I/O: one Spark job, and a second one if there are drops, renames or creations: no other envelope is read.

    Returns the groups of *rows*, the output of `rows_appended`.
    """
    is_event = (F.col("op") == "ddl") & F.col("operation_type").isin(*NAMESPACE_OPERATIONS)
    is_completion = (F.col("op") == "snapshot") & (F.col("operation_type") == "completed")
    is_document, is_end = F.col("op").isin(*DOCUMENT_OPS), F.col("resume_token").isNotNull()
    is_streamed = F.col("batch").isNotNull() & F.col("position").isNotNull()
    completion = F.when(is_completion, F.struct("snapshot_id", COMMIT_VERSION)).alias("completion")
    relevant_rows = rows.where(is_document | is_event | is_completion | is_end)
    groups = (
        relevant_rows.groupBy(*_COLLECTION, completion)
        .agg(
            F.min(F.when(is_document, F.col("position"))).alias("first"),
            F.max(F.when(is_streamed, F.struct("position", "source.txn_number"))).alias("newest"),
            F.max(F.when(F.col("op") == "r", F.col("position"))).alias("read"),
            F.max(F.when(is_end, F.struct(*_END))).alias("end"),
            F.max(is_event).alias("holds_events"),
        )
        .collect()
    )
    events = rows.where(is_event).select("position", "envelope") if any(row["holds_events"] for row in groups) else None
    return [
        *({**_EMPTY, "event": row} for row in (events.collect() if events is not None else ())),
        *({**_EMPTY, **row.asDict()} for row in groups),
    ]


def groups_in(rows: pa.Table) -> Iterator[Group]:
    """Yield the groups of rows that this process holds. Pure.

    Args:
        rows: Columns of `BATCH`, and ``_commit_version``. ``envelope`` is read of drops, renames and creations only.
    """
    is_document = pc.is_in(rows["op"], pa.array(DOCUMENT_OPS))
    documents, others = rows.filter(is_document), rows.filter(pc.invert(is_document))
    yield from _first_positions(documents)
    for number, row in enumerate(others.select(["op", "operation_type", "snapshot_id", COMMIT_VERSION]).to_pylist()):
        if row["op"] == "ddl" and row["operation_type"] in NAMESPACE_OPERATIONS:
            yield {**_EMPTY, "event": {name: others[name][number].as_py() for name in ("position", "envelope")}}
        if row["op"] == "snapshot" and row["operation_type"] == "completed":
            yield {**_EMPTY, "completion": row}
    newest_read = pc.max(rows["position"].filter(pc.equal(rows["op"], "r"))).as_py()
    ends = rows.filter(pc.is_valid(rows["resume_token"])).select(_END).to_pylist()
    end = max(ends, key=lambda one: (one["epoch"], one["batch"] or 0), default=None)
    yield {**_EMPTY, "newest": _newest(rows), "read": newest_read, "end": end}


def _first_positions(documents: pa.Table) -> Iterator[Group]:
    """Yield the smallest position of each collection. Arrow before version 21 has no minimum of texts by group."""
    in_order = documents.select([*_COLLECTION, "position"]).sort_by("position")
    numbers = pa.array(range(in_order.num_rows), pa.int64())
    grouped = in_order.append_column("number", numbers).group_by(list(_COLLECTION)).aggregate([("number", "min")])
    for row in grouped.to_pylist():
        yield {**_EMPTY, **row, "first": in_order["position"][row["number_min"]].as_py()}


def _newest(rows: pa.Table) -> Mapping[str, Any] | None:
    is_streamed = pc.and_(pc.is_valid(rows["batch"]), pc.is_valid(rows["position"]))
    streamed = rows.select(["position", "source"]).filter(is_streamed)
    position = pc.max(streamed["position"])
    if not position.is_valid:
        return None
    source: Sequence[Any] = streamed["source"].slice(pc.index(streamed["position"], position).as_py(), 1).to_pylist()
    return {"position": position.as_py(), "txn_number": (source[0] or {}).get("txn_number")}
