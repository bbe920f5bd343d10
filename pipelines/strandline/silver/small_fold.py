"""Fold the patches of a batch in memory onto the newest document, in the batch or in the table. Pure.

The same as `fold_selected_keys`, for rows that this process holds.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from strandline.model.gap import Gap
from strandline.silver.batch_profile import profile_of
from strandline.silver.fold.patches import CURRENT, PENDING, folding
from strandline.silver.schema.census import Census
from strandline.silver.small_batch import is_patch

_PATCHES: Final = pa.list_(pa.struct([("position", pa.string()), ("envelope", pa.binary())]))
_STORED_TYPES: Final = {"_document": pa.binary(), "_exact": pa.bool_(), "_pending": PENDING}
_STORED_FIELDS: Final = [pa.field(f"stored{name}", _STORED_TYPES.get(name, pa.string())) for name in CURRENT[1:]]
_MICROS: Final = pa.int64()


def folded_keys(changes: pa.Table, current: pa.Table) -> frozenset[str]:
    """Return the keys to fold: with a patch among *changes*, or with pending patches in their *current* row."""
    patched = changes.filter(is_patch(changes))["key"].to_pylist()
    waiting = current.filter(current["_pending"].is_valid())["_key"].to_pylist()
    changed = set(changes["key"].to_pylist())
    return frozenset(patched) | (frozenset(waiting) & changed)


def folded_state(
    changes: pa.Table, state: pa.Table, current: pa.Table, keys: Collection[str], gaps: Sequence[Gap]
) -> pa.Table:
    """Return *state* with the patches of *keys* folded, and with the column ``_pending``.

    Args:
        changes: Output of `changes_of`.
        state: Output of `state_of`.
        current: Columns `CURRENT` of the silver rows that have one of *keys*.
        gaps: Gaps of bronze for this collection.
    """
    is_folded = pc.is_in(state["_key"], pa.array(list(keys), pa.string()))
    others = state.filter(pc.invert(is_folded))
    others = others.append_column("_pending", pa.nulls(others.num_rows, PENDING))
    own = state.filter(is_folded)
    at = own.schema.get_field_index("_cluster_time")
    # As a number: the time is only passed through, and Arrow would import pandas for it.
    candidates = own.set_column(at, "_cluster_time", own["_cluster_time"].cast(_MICROS))
    batches = _with_patches(candidates, changes, current).combine_chunks().to_batches()
    folded = pa.Table.from_batches(list(folding(tuple(gaps))(iter(batches)))) if batches else None
    if folded is None:
        return others
    folded = folded.select(others.schema.names)
    return pa.concat_tables([folded.cast(others.schema), others])


def _with_patches(state: pa.Table, changes: pa.Table, current_rows: pa.Table) -> pa.Table:
    """Return *state* with the columns that `folding` reads."""
    patches: dict[str, list[dict[str, object]]] = {}
    for row in changes.filter(is_patch(changes)).select(["key", "position", "envelope"]).to_pylist():
        patches.setdefault(row["key"], []).append({"position": row["position"], "envelope": row["envelope"]})
    current = {row["_key"]: row for row in current_rows.select(CURRENT).to_pylist()}
    keys = state["_key"].to_pylist()
    matches = [current.get(key, {}) for key in keys]
    rows = state.append_column("patches", pa.array([patches.get(key) for key in keys], _PATCHES))
    for field in _STORED_FIELDS:
        values = [held.get(field.name.removeprefix("stored")) for held in matches]
        rows = rows.append_column(field, pa.array(values, field.type))
    return rows


def census_of_folded(state: pa.Table, keys: Collection[str], *, max_depth: int) -> Census:
    """Take the census of folded documents, which exist in no bronze row.

    Args:
        state: Output of `folded_state`.
        keys: Keys that were folded.
    """
    folded = state.filter(pc.is_in(state["_key"], pa.array(list(keys), pa.string())))
    columns = {
        "op": folded["base_op"],
        "key": folded["_key"],
        "is_patch": pa.array([False] * folded.num_rows),
        "envelope": folded["envelope"],
    }
    return profile_of(pa.table(columns).to_batches(), max_depth=max_depth).census
