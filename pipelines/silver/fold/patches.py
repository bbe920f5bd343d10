"""Keys whose newest change came without its document: its patches are folded onto the last known one. Pure: DataFrame → DataFrame, lazy.

A key's documents and patches, in whatever order they arrive, make one state: the newest document, and upon it every patch with a larger
position, in order. A patch that cannot be folded (`fold_next`) waits in the row (``_pending``), with all later ones; a document that comes
late finds it there. A change of which bronze holds neither document nor patch is an entry without a patch: only a newer document ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.model.gap import Gap
from pipelines.silver.decode.document import document_in, patch_in
from pipelines.silver.fold.step import LOOKUP, OVERSIZE, WAITING, Base, fold_next, reasons_in, reasons_text
from pipelines.silver.key_filter import Keys
from pipelines.silver.latest import NEWEST, NEWEST_DDL, PENDING_TYPE, latest_per_key, same_incarnation

CURRENT: Final = ("_key", "_collection_uuid", "_base_position", "_document", "_exact", "_inexact_because", "_pending")
"""Columns of the silver table that folding reads."""

_FOLDED_DDL = f"{NEWEST_DDL}, _base_position STRING, base_op STRING, envelope BINARY, _inexact_because STRING, _pending {PENDING_TYPE}"
_PENDING = pa.list_(pa.struct([("position", pa.string()), ("patch", pa.binary())]))


def is_patch() -> Column:
    """Whether a change is an insert or an update without its document."""
    return F.col("op").isin("c", "u") & F.col("document_size").isNull()


def partly_folded(
    changes: DataFrame, current: DataFrame, keys: Keys, gaps: Sequence[Gap] = ()
) -> tuple[DataFrame, DataFrame]:
    """The state of every key, as `latest_per_key` makes it; of *keys* as `folded_per_key` does.

    Args:
        changes, current, gaps: As `folded_per_key` takes them.
        keys: Where they are not listed, all of *changes* are folded.

    Returns:
        The state of all keys, and that of the folded ones among them.
    """
    if not keys.listed:
        folded = folded_per_key(changes, current, gaps=gaps)
        return folded, folded
    is_folded = F.coalesce(F.expr(keys.among("key")), F.lit(False))
    folded = folded_per_key(changes.where(is_folded), current.where(keys.among("_key")), gaps=gaps)
    others = (
        latest_per_key(changes.where(~is_folded))
        .drop("inserted")
        .withColumn("_pending", F.lit(None).cast(PENDING_TYPE))
    )
    return folded.unionByName(others), folded


def folded_per_key(changes: DataFrame, current: DataFrame, *, gaps: Sequence[Gap] = ()) -> DataFrame:
    """As `latest_per_key`, with patches folded onto the newest document that allows it: of *changes*, or of the table.

    Args:
        changes: Changes of one collection, as `latest_per_key` takes them.
        current: The silver table; reads `CURRENT`. At most one row per key.
        gaps: Of bronze. A patch that lies behind one waits for a document from behind it.

    Returns:
        The columns of `latest_per_key` without ``inserted``, and ``_pending``. ``_base_position`` is the last patch's where one was folded,
        and null where the table's own document is still the newest. A document stands in ``envelope`` as a READ's does
        (``base_op`` = ``r``). ``_inexact_because`` speaks of the table's own document where that is still the newest.
    """
    patches = (
        changes.where(is_patch())
        .groupBy(F.col("key").alias("_key"))
        .agg(F.collect_list(F.struct("position", "envelope")).alias("patches"))
    )
    held = current.select("_key", *(F.col(name).alias(f"held{name}") for name in CURRENT[1:]))
    state = latest_per_key(changes)
    joined = state.join(_renamed(patches), F.col("_key").eqNullSafe(F.col("other_key")), "left").drop("other_key")
    same_row = F.col("_key").eqNullSafe(F.col("other_key")) & same_incarnation(
        "_collection_uuid", "held_collection_uuid"
    )
    joined = joined.join(_renamed(held), same_row, "left").drop("other_key", "held_collection_uuid")
    return joined.mapInArrow(_folding(tuple(gaps)), _FOLDED_DDL)


def _renamed(frame: DataFrame) -> DataFrame:
    return frame.withColumnRenamed("_key", "other_key")


@dataclass(frozen=True)
class Outcome:
    """A key after folding. *base* is None where there is no document at all."""

    base: Base | None
    pending: Mapping[str, bytes | None]

    @property
    def inexact_because(self) -> str | None:
        """Every reason why the document may not be the key's newest state."""
        reasons = [] if self.base is None or self.base.inexact is None else [self.base.inexact]
        reasons += [OVERSIZE] if any(patch is None for patch in self.pending.values()) else []
        reasons += [WAITING] if any(patch is not None for patch in self.pending.values()) else []
        return reasons_text(reasons)


def fold_pending(
    base: Base | None, patches: Mapping[str, bytes | None], gaps: Sequence[Gap] = (), *, deleted_at: str | None = None
) -> Outcome:
    """Fold *patches* (position → ``updateDescription``, or None) onto *base*; those at or below its position are in it already.

    One that cannot be folded keeps itself and all later ones waiting: a later patch must never hide the loss of an earlier one.

    Args:
        deleted_at: The position of a delete that is the newest change. What is left below it, above a document that may hold it already,
            waits for nothing.
    """
    waiting = {position: patches[position] for position in sorted(patches) if base is None or position > base.position}
    if base is None:
        return Outcome(base, waiting)
    for position in list(waiting):
        after = fold_next(base, position, waiting[position], gaps)
        if after is None:
            break
        base = after
        del waiting[position]
    if deleted_at is not None and not base.is_foldable:
        waiting = {position: patch for position, patch in waiting.items() if position > deleted_at}
    return Outcome(base, waiting)


def _folding(gaps: tuple[Gap, ...]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    names = ["_base_position", "base_op", "envelope", "_inexact_because", "_pending"]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            positions: list[str | None] = []
            documents: list[bytes | None] = []
            reasons: list[str | None] = []
            pending: list[list[dict[str, Any]] | None] = []
            for row in batch.to_pylist():
                held, outcome = _folded_row(row, gaps)
                changed = None if outcome.base is held else outcome.base
                positions.append(None if changed is None else changed.position)
                documents.append(None if changed is None else changed.document)
                reasons.append(outcome.inexact_because)
                pending.append(
                    [{"position": position, "patch": patch} for position, patch in outcome.pending.items()] or None
                )
            ops = [None if document is None else "r" for document in documents]
            arrays = [pa.array(texts, pa.string()) for texts in (positions, ops)]
            arrays += [pa.array(documents, pa.binary()), pa.array(reasons, pa.string()), pa.array(pending, _PENDING)]
            columns = [*(batch.column(name) for name in NEWEST), *arrays]
            yield pa.RecordBatch.from_arrays(columns, names=[*NEWEST, *names])

    return run


def _folded_row(row: dict[str, Any], gaps: tuple[Gap, ...]) -> tuple[Base | None, Outcome]:
    """The document that the table holds, and what becomes of the key."""
    base = held = _held(row)
    document = document_in(row["base_op"], row["envelope"])
    if document is not None and (held is None or row["_base_position"] > held.position):
        base = Base(row["_base_position"], document, row["_inexact_because"])
    patches: dict[str, bytes | None] = {entry["position"]: entry["patch"] for entry in row["held_pending"] or ()}
    for entry in row["patches"] or ():
        patch = patch_in(entry["envelope"])
        if patch is not None or entry["position"] not in patches:  # captured twice, once in part
            patches[entry["position"]] = patch
    return held, fold_pending(base, patches, gaps, deleted_at=row["_position"] if row["_deleted"] else None)


def _held(row: dict[str, Any]) -> Base | None:
    position, document, reasons = row["held_base_position"], row["held_document"], row["held_inexact_because"]
    if position is None or document is None:
        return None
    if reasons is None:  # a row of an older release does not tell why
        return Base(position, document, None if row["held_exact"] else LOOKUP)
    own = [reason for reason in reasons_in(reasons) if reason not in (OVERSIZE, WAITING)]
    return Base(position, document, own[0] if own else None)
