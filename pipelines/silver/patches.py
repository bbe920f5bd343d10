"""Keys whose newest change came without its document: its patches are folded onto the last known one. Pure: DataFrame → DataFrame, lazy.

A key's documents and patches, in whatever order they arrive, make one state: the newest document, and upon it every patch with a larger
position, in order. A patch that has no document to stand on waits in the row (``_pending``); a late READ finds it there.

A document is *exact* where it is the one at its position: inserted, replaced, read by a snapshot, a post-image, or folded. One that was
looked up later may hold later patches already; nothing is folded onto it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.model import raw_bson as rb
from pipelines.model.gap import Gap
from pipelines.silver.document import document_in, is_exact, patch_in
from pipelines.silver.fold import CannotFold, fold
from pipelines.silver.latest import NEWEST, NEWEST_DDL, PENDING_TYPE, latest_per_key, same_incarnation

CURRENT: Final = ("_key", "_collection_uuid", "_base_position", "_document", "_exact", "_pending")
"""Columns of the silver table that folding reads."""

_FOLDED_DDL = f"{NEWEST_DDL}, _base_position STRING, base_op STRING, envelope BINARY, _pending {PENDING_TYPE}"
_PENDING = pa.list_(pa.struct([("position", pa.string()), ("patch", pa.binary())]))


def is_patch() -> Column:
    """Whether a bronze row is an update without its document."""
    return (F.col("op") == "u") & F.col("document_size").isNull()


def folded_per_key(changes: DataFrame, current: DataFrame, *, exact_updates: bool, gaps: Sequence[Gap] = ()) -> DataFrame:
    """As `latest_per_key`, with patches folded onto the newest exact document: of *changes*, or of the table.

    Args:
        changes: Bronze rows of one collection, as `latest_per_key` takes them.
        current: The silver table; reads `CURRENT`. At most one row per key.
        exact_updates: Documents of updates are post-images, not looked up.
        gaps: Of bronze. A patch that lies behind one waits for a document from behind it.

    Returns:
        The columns of `latest_per_key` without ``inserted``, and ``_pending``. ``_base_position`` is the last patch's where one was folded,
        and null where the table's own document is still the newest. A folded document stands in ``envelope`` as a READ's does
        (``base_op`` = ``r``).
    """
    patches = (
        changes.where(is_patch()).groupBy(F.col("key").alias("_key")).agg(F.collect_list(F.struct("position", "envelope")).alias("patches"))
    )
    held = current.select("_key", *(F.col(name).alias(f"held{name}") for name in CURRENT[1:]))
    state = latest_per_key(changes)
    joined = state.join(_renamed(patches), F.col("_key").eqNullSafe(F.col("other_key")), "left").drop("other_key")
    same_row = F.col("_key").eqNullSafe(F.col("other_key")) & same_incarnation("_collection_uuid", "held_collection_uuid")
    joined = joined.join(_renamed(held), same_row, "left").drop("other_key", "held_collection_uuid")
    return joined.mapInArrow(_folding(exact_updates, tuple(gaps)), _FOLDED_DDL)


def _renamed(frame: DataFrame) -> DataFrame:
    return frame.withColumnRenamed("_key", "other_key")


@dataclass(frozen=True)
class Base:
    """The newest document of a key: where it stands in the stream, its bytes, and whether folding may build on it."""

    position: str
    document: bytes
    exact: bool


@dataclass(frozen=True)
class Outcome:
    """A key after folding. *base* is None where there is no document at all."""

    base: Base | None
    pending: Mapping[str, bytes]


def fold_pending(base: Base | None, patches: Mapping[str, bytes], gaps: Sequence[Gap] = ()) -> Outcome:
    """Fold *patches* (position → ``updateDescription``) onto *base*; those at or below its position are in it already.

    One that cannot be folded, or that a gap parts from the document, keeps itself and all later ones waiting: a later patch must never
    hide the loss of an earlier one.
    """
    waiting = {position: patches[position] for position in sorted(patches) if base is None or position > base.position}
    if base is None or not base.exact:
        return Outcome(base, waiting)
    for position in list(waiting):
        if any(gap.parts(base.position, position) for gap in gaps):
            break
        try:
            base = Base(position, fold(base.document, waiting[position]), exact=True)
        except (CannotFold, rb.MalformedBson):
            break
        del waiting[position]
    return Outcome(base, waiting)


def _folding(exact_updates: bool, gaps: tuple[Gap, ...]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            positions: list[str | None] = []
            ops: list[str | None] = []
            documents: list[bytes | None] = []
            pending: list[list[dict[str, Any]] | None] = []
            for row in batch.drop_columns(list(NEWEST)).to_pylist():
                position, op, document, waiting = _folded_row(row, exact_updates, gaps)
                positions.append(position)
                ops.append(op)
                documents.append(document)
                pending.append(waiting)
            arrays = [pa.array(positions, pa.string()), pa.array(ops, pa.string()), pa.array(documents, pa.binary())]
            columns = [*(batch.column(name) for name in NEWEST), *arrays, pa.array(pending, _PENDING)]
            yield pa.RecordBatch.from_arrays(columns, names=[*NEWEST, "_base_position", "base_op", "envelope", "_pending"])

    return run


def _folded_row(
    row: dict[str, Any], exact_updates: bool, gaps: tuple[Gap, ...]
) -> tuple[str | None, str | None, bytes | None, list[dict[str, Any]] | None]:
    """``_base_position``, ``base_op``, ``envelope`` and ``_pending`` of one joined row."""
    held = None
    if row["held_document"] is not None and row["held_base_position"] is not None:
        held = Base(row["held_base_position"], row["held_document"], bool(row["held_exact"]))
    base, fresh = held, None
    document = document_in(row["base_op"], row["envelope"])
    if document is not None and (held is None or row["_base_position"] > held.position):
        base = fresh = Base(row["_base_position"], document, exact_updates or is_exact(row["base_op"], row["envelope"]))
    patches = {entry["position"]: entry["patch"] for entry in row["held_pending"] or ()}
    patches |= {entry["position"]: patch_in(entry["envelope"]) for entry in row["patches"] or ()}
    outcome = fold_pending(base, patches, gaps)
    pending = [{"position": position, "patch": patch} for position, patch in outcome.pending.items()] or None
    if outcome.base is None or outcome.base is held:
        return None, None, None, pending
    if outcome.base is fresh and not fresh.exact:
        return fresh.position, row["base_op"], row["envelope"], pending
    return outcome.base.position, "r", outcome.base.document, pending
