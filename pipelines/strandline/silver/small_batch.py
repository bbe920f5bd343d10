"""Changes of one collection as Arrow tables, and the state of each key. Pure.

These are the rules of `as_changes` and `latest_per_key`, for rows that this process holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from strandline.io.delta_log.appended_rows import COMMIT_VERSION
from strandline.model.namespaces import Namespace
from strandline.model.shape import Shape
from strandline.model.table_schemas import CHANGE_OPS, READ_CAPPED
from strandline.silver.batch_profile import BatchProfile, profile_of
from strandline.silver.decode.rows import decoding
from strandline.silver.latest import NEWEST

_TEXT: Final = pa.string()
BATCH: Final = pa.schema(
    {
        **dict.fromkeys(("op", "operation_type", "db", "collection", "collection_uuid", "key", "position"), _TEXT),
        "cluster_time": pa.timestamp("us", tz="UTC"),
        "document_size": pa.int32(),
        "envelope": pa.binary(),
        **dict.fromkeys(("snapshot_id", "resume_token"), _TEXT),
        "batch": pa.int64(),
        "epoch": pa.int32(),
        "ends_outside_transaction": pa.bool_(),
        "source": pa.struct({"txn_number": pa.int64()}),
    }
)
"""Columns of bronze that changes need."""

_STATE: Final = pa.schema(
    {
        **dict.fromkeys(("_key", "_position", "_op"), _TEXT),
        "_deleted": pa.bool_(),
        "_cluster_time": pa.timestamp("us", tz="UTC"),
        "_bronze_version": pa.int64(),
        **dict.fromkeys(("_collection_uuid", "_base_position", "base_op"), _TEXT),
        "envelope": pa.binary(),
        "_inexact_because": _TEXT,
    }
)
_KEPT_COLUMNS: Final = (*NEWEST, "_base_position", "_inexact_because")
_COLUMNS: Final = ("op", "collection_uuid", "key", "position", "cluster_time", "document_size")

_VALUES: Final = ("_base_position", "base_op", "envelope", "_inexact_because", "_pending")


def changes_of(
    rows: pa.Table, namespaces: Sequence[Namespace], after: int, *, exact_updates: bool, are_tenants: bool = False
) -> pa.Table:
    """Return the changes of some collections above bronze version *after*, as `as_changes` gives them.

    Args:
        rows: Bronze rows: the columns of `BATCH`, and ``_commit_version``.
        are_tenants: True: ``key`` is that of a tenant table.
    """
    names = pc.binary_join_element_wise(rows["db"], rows["collection"], ".")
    has_name = pc.is_in(names, pa.array(map(str, namespaces), _TEXT))
    changes = _where(rows, pc.and_(has_name, pc.greater(rows[COMMIT_VERSION], after)))
    if are_tenants:
        changes = changes.set_column(changes.schema.get_field_index("key"), "key", _tenant_keys(changes))
    op, kind = changes["op"], changes["operation_type"].fill_null("")
    is_lookup = pc.and_(pc.equal(op, "u"), pc.and_(pc.not_equal(kind, "replace"), not exact_updates))
    is_capped = pc.and_(pc.equal(op, "r"), pc.equal(kind, READ_CAPPED))
    is_left_out = pc.and_(pc.equal(op, "oversize"), pc.is_valid(changes["key"]))
    inexact = pc.case_when(pc.make_struct(is_lookup, is_capped), "lookup", "capped", pa.scalar(None, _TEXT))
    ops = pc.if_else(is_left_out, pc.if_else(pc.equal(kind, "insert"), "c", "u"), op)
    changes = changes.set_column(changes.schema.get_field_index("op"), "op", ops)
    changes = changes.append_column("inexact", inexact)
    return _where(changes, pc.is_in(changes["op"], pa.array(CHANGE_OPS)))


def rows_by_collection(rows: pa.Table) -> dict[str, pa.Table]:
    """Return the bronze *rows* of each collection, in their order. Rows without a collection are left out."""
    names = pc.binary_join_element_wise(rows["db"], rows["collection"], ".")
    order = pc.sort_indices(names)  # a stable sort; nulls are last
    counts = pc.value_counts(names.take(order).drop_null()).to_pylist()
    firsts = accumulate((one["counts"] for one in counts), initial=0)
    rows = rows.take(order)
    return {one["values"]: rows.slice(first, one["counts"]) for one, first in zip(counts, firsts, strict=False)}


def _tenant_keys(rows: pa.Table) -> pa.ChunkedArray:
    """Return the ``_key`` of bronze rows in a tenant table: see `key_prefix`."""
    lengths = pc.utf8_length(rows["collection"]).cast(_TEXT)
    names = pc.binary_join_element_wise(rows["db"], rows["collection"], ".")
    return pc.binary_join_element_wise(lengths, names, rows["key"].fill_null(""), ":")


def _where(rows: pa.Table, is_wanted: pa.ChunkedArray) -> pa.Table:
    """Filter *rows*. If all are wanted, nothing is copied."""
    is_wanted = is_wanted.fill_null(False)
    return rows if pc.all(is_wanted).as_py() else rows.filter(is_wanted)


def profile(changes: pa.Table, *, max_depth: int) -> BatchProfile:
    """Profile the output of `changes_of`."""
    return profile_of(profiled(changes), max_depth=max_depth)


def profiled(changes: pa.Table) -> list[pa.RecordBatch]:
    """Return the columns of the output of `changes_of` that a profile needs: see `profile_of`."""
    envelopes = _of_document(changes, "envelope")
    columns = {"op": changes["op"], "key": changes["key"], "is_patch": is_patch(changes), "envelope": envelopes}
    return pa.table(columns).to_batches()  # type: ignore[no-any-return]  # why: pyarrow has no types


def is_patch(changes: pa.Table) -> pa.ChunkedArray:
    """Return a column: true if a change is an insert or an update without its document."""
    return pc.and_(pc.is_in(changes["op"], pa.array(["c", "u"])), pc.is_null(changes["document_size"]))


def state_of(changes: pa.Table) -> pa.Table:
    """Keep the newest change and the newest document of every key of `changes_of`, as `latest_per_key` does."""
    names = (*_COLUMNS, COMMIT_VERSION, "inexact")
    rows = [dict(zip(names, row, strict=True)) for row in zip(*(_values(changes[name]) for name in names), strict=True)]
    newest: dict[str, int] = {}
    documents: dict[str, int] = {}
    for number, row in enumerate(rows):
        key = row["key"]
        if key not in newest or _age(row) > _age(rows[newest[key]]):
            newest[key] = number
        has_document = row["document_size"] is not None
        if has_document and (key not in documents or row["position"] > rows[documents[key]]["position"]):
            documents[key] = number
    state: list[tuple[Any, ...]] = []
    envelopes: list[int | None] = []
    for key, number in newest.items():
        change, document = rows[number], documents.get(key)
        is_deleted = change["op"] == "d"
        base: dict[str, Any] = {} if document is None else rows[document]
        envelopes.append(document)
        state.append(
            (
                *(key, change["position"], change["op"], is_deleted, change["cluster_time"], change[COMMIT_VERSION]),
                *(change["collection_uuid"], base.get("position"), base.get("op"), base.get("inexact")),
            )
        )
    columns = [list(column) for column in zip(*state, strict=True)] or [[] for _ in range(10)]
    taken = changes["envelope"].take(pa.array(envelopes, pa.int64()))
    arrays = [*columns[:9], taken, columns[9]]
    return pa.table(
        {field.name: _array(values, field.type) for field, values in zip(_STATE, arrays, strict=True)}, schema=_STATE
    )


def state_of_single(changes: pa.Table) -> pa.Table:
    """Return `state_of` for changes of which no two have the same key."""
    newest = ("key", "position", "op", "", "cluster_time", COMMIT_VERSION, "collection_uuid")
    columns = [changes[name] if name else pc.equal(changes["op"], "d") for name in newest]
    columns += [_of_document(changes, name) for name in ("position", "op", "envelope", "inexact")]
    return pa.Table.from_arrays(columns, schema=_STATE)


def _of_document(changes: pa.Table, name: str) -> pa.ChunkedArray:
    """Return a column, null for changes without a document."""
    values, sizes = changes[name], changes["document_size"]
    return values if not sizes.null_count else pc.if_else(pc.is_valid(sizes), values, pa.scalar(None, values.type))


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return Python's values; times as integers, because Arrow would import pandas for times with a zone."""
    return (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()  # type: ignore[no-any-return]  # why: pyarrow has no types


def _array(values: Any, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, pa.ChunkedArray):
        return values
    return pa.array(values, pa.int64()).cast(kind) if pa.types.is_timestamp(kind) else pa.array(values, kind)


def _age(row: Mapping[str, Any]) -> tuple[str, str, int]:
    return row["position"], row["op"], row[COMMIT_VERSION]


def without_deleted_values(state: pa.Table) -> pa.Table:
    """Clear the document of every tombstone, for ``deletes: hard``. The tombstone keeps its position."""
    indices = pa.array(
        [None if gone else number for number, gone in enumerate(state["_deleted"].to_pylist())], pa.int64()
    )
    columns = [state[name].take(indices) if name in _VALUES else state[name] for name in state.schema.names]
    return pa.Table.from_arrays(columns, schema=state.schema)


def typed(state: pa.Table, shape: Shape) -> pa.Table:
    """Decode the documents of *state* into the columns of a portable table, as `typed_rows` does."""
    names = [name for name in (*_KEPT_COLUMNS, "_pending") if name in state.schema.names]
    batches = list(decoding(shape, names)(iter(state.combine_chunks().to_batches())))
    rows = pa.Table.from_batches(batches)
    is_exact = pc.if_else(
        pc.is_valid(rows["_inexact_because"]), False, pc.if_else(pc.is_valid(rows["_document"]), True, None)
    )
    return rows.append_column("_exact", is_exact)
