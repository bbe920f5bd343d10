"""Fold the patches of each key onto the key's newest document. Pure: DataFrame → DataFrame, lazy.

The state of a key is its newest document with every later patch folded onto it, in order of position. The order of
arrival does not matter. A patch that cannot be folded (`fold_next`) waits in the row's ``_pending``, with all later
patches, until a document arrives. A change without document and patch (oversize) waits as an entry without a patch.
Only a newer document removes that entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from strandline.io.spark import column_functions as F
from strandline.model.gap import Gap
from strandline.model.lives import ONE_LIFE, Lives
from strandline.silver.decode.document import document_in, patch_in
from strandline.silver.fold.step import OVERSIZE, WAITING, Base, fold_next, reasons_in, reasons_text
from strandline.silver.incarnations import are_one
from strandline.silver.key_filter import Keys
from strandline.silver.latest import NEWEST, NEWEST_DDL, PENDING_TYPE, latest_per_key

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CURRENT: Final = ("_key", "_position", "_base_position", "_document", "_exact", "_inexact_because", "_pending")
"""Columns of the silver table that folding reads."""

_FOLDED_DDL = (
    f"{NEWEST_DDL}, _base_position STRING, base_op STRING, envelope BINARY, _inexact_because STRING, "
    f"_pending {PENDING_TYPE}"
)
PENDING: Final = pa.list_(pa.struct([("position", pa.string()), ("patch", pa.binary())]))


def is_patch() -> Column:
    """Return a column: true if a change is an insert or an update without its document."""
    return F.col("op").isin("c", "u") & F.col("document_size").isNull()


def fold_selected_keys(
    changes: DataFrame, current: DataFrame, keys: Keys, gaps: Sequence[Gap] = (), lives: Lives = ONE_LIFE
) -> tuple[DataFrame, DataFrame]:
    """Fold the changes of *keys* with `folded_per_key`, and collapse all other changes with `latest_per_key`.

    Args:
        changes, current, gaps, lives: See `folded_per_key`.
        keys: Keys to fold. If they are not listed, all changes are folded.

    Returns:
        State of all keys, and state of the folded keys alone.
    """
    if not keys.listed:
        folded = folded_per_key(changes, current, gaps=gaps, lives=lives)
        return folded, folded
    is_folded = F.coalesce(F.expr(keys.predicate("key")), F.lit(False))
    folded = folded_per_key(changes.where(is_folded), current.where(keys.predicate("_key")), gaps=gaps, lives=lives)
    others = (
        latest_per_key(changes.where(~is_folded), lives)
        .drop("inserted")
        .withColumn("_pending", F.lit(None).cast(PENDING_TYPE))
    )
    return folded.unionByName(others), folded


def folded_per_key(
    changes: DataFrame, current: DataFrame, *, gaps: Sequence[Gap] = (), lives: Lives = ONE_LIFE
) -> DataFrame:
    """Collapse changes like `latest_per_key`, and fold patches onto the newest document in *changes* or in the table.

    Args:
        changes: Changes of one collection, as for `latest_per_key`.
        current: Silver table; reads `CURRENT`. At most one row per key.
        gaps: Gaps of bronze. A patch after a gap waits for a document after the gap.
        lives: Lives of the collection's name. No patch is folded onto a document of another life.

    Returns:
        Columns of `latest_per_key` without ``inserted``, and ``_pending``. ``_base_position`` is the position of the
        last folded patch; null if the table's own document is still the newest. ``envelope`` holds the document alone,
        as in a READ (``base_op`` = ``r``). ``_inexact_because`` describes the newest document, also if that is the
        table's own.
    """
    patches = (
        changes.where(is_patch())
        .groupBy(F.col("key").alias("_key"))
        .agg(F.collect_list(F.struct("position", "envelope")).alias("patches"))
    )
    current_state = current.select("_key", *(F.col(name).alias(f"stored{name}") for name in CURRENT[1:]))
    state = latest_per_key(changes, lives)
    joined = state.join(_renamed(patches), F.col("_key").eqNullSafe(F.col("other_key")), "left").drop("other_key")
    same_row = F.col("_key").eqNullSafe(F.col("other_key")) & F.expr(are_one(lives, "_position", "stored_position"))
    joined = joined.join(_renamed(current_state), same_row, "left").drop("other_key", "stored_position")
    return joined.mapInArrow(folding(tuple(gaps)), _FOLDED_DDL)


def _renamed(frame: DataFrame) -> DataFrame:
    return frame.withColumnRenamed("_key", "other_key")


@dataclass(frozen=True)
class FoldOutcome:
    """State of a key after folding.

    Attributes:
        base: Newest document with all foldable patches. None: the key has no document.
        pending: Pending patches by position. A patch is None if bronze does not have it.
    """

    base: Base | None
    pending: Mapping[str, bytes | None]

    @property
    def inexact_because(self) -> str | None:
        """Reasons why the document may not be the key's newest state, as text. None: it is the newest state."""
        reasons = [] if self.base is None or self.base.inexact is None else [self.base.inexact]
        reasons += [OVERSIZE] if any(patch is None for patch in self.pending.values()) else []
        reasons += [WAITING] if any(patch is not None for patch in self.pending.values()) else []
        return reasons_text(reasons)


def fold_pending(
    base: Base | None, patches: Mapping[str, bytes | None], gaps: Sequence[Gap] = (), *, deleted_at: str | None = None
) -> FoldOutcome:
    """Fold *patches* onto *base*, in order of position.

    Patches at or below the position of *base* are dropped: it contains them.

    A patch that cannot be folded waits, and so do all later patches. Otherwise a later patch would hide the loss of an
    earlier one.

    Args:
        base: Newest document. None: all patches wait.
        patches: Position → ``updateDescription``, or None if bronze does not have the patch.
        gaps: Gaps of bronze for this collection.
        deleted_at: Position of the key's newest change, if that is a delete. Patches at or below it are then dropped if
            *base* may already contain them.
    """
    waiting = {position: patches[position] for position in sorted(patches) if base is None or position > base.position}
    if base is None:
        return FoldOutcome(base, waiting)
    for position in list(waiting):
        after = fold_next(base, position, waiting[position], gaps)
        if after is None:
            break
        base = after
        del waiting[position]
    if deleted_at is not None and not base.is_foldable:
        waiting = {position: patch for position, patch in waiting.items() if position > deleted_at}
    return FoldOutcome(base, waiting)


def folding(gaps: tuple[Gap, ...]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that folds batches of rows: a key's state, its patches, and its stored row."""
    names = ["_base_position", "base_op", "envelope", "_inexact_because", "_pending"]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            positions: list[str | None] = []
            documents: list[bytes | None] = []
            reasons: list[str | None] = []
            pending: list[list[dict[str, Any]] | None] = []
            for row in batch.to_pylist():
                base, outcome = _folded_row(row, gaps)
                changed = None if outcome.base is base else outcome.base
                positions.append(None if changed is None else changed.position)
                documents.append(None if changed is None else changed.document)
                reasons.append(outcome.inexact_because)
                pending.append(
                    [{"position": position, "patch": patch} for position, patch in outcome.pending.items()] or None
                )
            ops = [None if document is None else "r" for document in documents]
            arrays = [pa.array(texts, pa.string()) for texts in (positions, ops)]
            arrays += [pa.array(documents, pa.binary()), pa.array(reasons, pa.string()), pa.array(pending, PENDING)]
            columns = [*(batch.column(name) for name in NEWEST), *arrays]
            yield pa.RecordBatch.from_arrays(columns, names=[*NEWEST, *names])

    return run


def _folded_row(row: dict[str, Any], gaps: tuple[Gap, ...]) -> tuple[Base | None, FoldOutcome]:
    """Return the document that the table holds (None: it has none) and the key's state after folding."""
    base = stored_base = _stored_base(row)
    document = document_in(row["base_op"], row["envelope"])
    if document is not None and (stored_base is None or row["_base_position"] > stored_base.position):
        base = Base(row["_base_position"], document, row["_inexact_because"])
    patches: dict[str, bytes | None] = {entry["position"]: entry["patch"] for entry in row["stored_pending"] or ()}
    for entry in row["patches"] or ():
        patch = patch_in(entry["envelope"])
        if patch is not None or entry["position"] not in patches:  # captured twice, once without its patch
            patches[entry["position"]] = patch
    return stored_base, fold_pending(base, patches, gaps, deleted_at=row["_position"] if row["_deleted"] else None)


def _stored_base(row: dict[str, Any]) -> Base | None:
    position, document, reasons = row["stored_base_position"], row["stored_document"], row["stored_inexact_because"]
    if position is None or document is None:
        return None
    own = [reason for reason in reasons_in(reasons) if reason not in (OVERSIZE, WAITING)]
    return Base(position, document, own[0] if own else None)
