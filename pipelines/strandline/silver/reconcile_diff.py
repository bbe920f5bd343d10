"""Comparison of silver with the source for `reconcile`: digest sums by `_id` range, documents of a range, differences.

Pure: functions from Arrow batches to Arrow batches. Spark runs them on its executors, this process in its threads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.model.bson.id_order import RangeFinder, id_document
from strandline.model.range_digest import RangeDigest, digest

_TEXT, _BYTES = pa.string(), pa.binary()
SUMS: Final = pa.schema({"number": pa.int32(), "documents": pa.int64(), "total": _TEXT})
"""Number of an `_id` range, count of its documents, and the sum of their digests, in hex."""
DOCUMENTS: Final = pa.schema(
    {"key": _TEXT, "position": _TEXT, "moved": pa.bool_(), "identifier": _BYTES, "digest": _BYTES}
)
"""Documents of one side. ``position`` and ``moved`` are null in the source."""
DIFFERENCES: Final = pa.schema({"key": _TEXT, "kind": _TEXT, "identifier": _BYTES, "position": _TEXT})
REPORT: Final = pa.schema(
    {
        "run_id": _TEXT,
        "at": pa.timestamp("us", tz="UTC"),
        **dict.fromkeys(("source", "db", "collection", "kind", "key"), _TEXT),
        "identifier": _BYTES,
        "position": _TEXT,
        "paths": pa.list_(_TEXT),
        "compared_at": _TEXT,
        "confirmed": pa.bool_(),
        "repaired_at": pa.timestamp("us", tz="UTC"),
    }
)
"""Columns of ``control.reconcile``."""
WAITING_RANGE: Final = -1
"""Range number of rows that wait for their document. Their `_id` range is not known."""
FACTS: Final = ("_key", "_position", "_deleted", "_document")
"""Columns of a silver table that are compared with the source."""

Batches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def summing(bounds: Sequence[bytes], through: Mapping[int, str], after: str) -> Batches:
    """Count the live documents of each `_id` range and sum their digests: rows with `FACTS` → `SUMS`.

    Rows that wait for their document are counted under the range number `WAITING_RANGE`.

    Args:
        bounds: Boundaries between the ranges, in MongoDB's sort order.
        through: Position at which each range was read from the source. Rows that changed later are left out, and all
            rows of other ranges.
        after: Position up to which rows belong to earlier lives of the name, and are left out. Empty: none does.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        finder, sums = RangeFinder(bounds), dict[int, RangeDigest]()
        for batch in batches:
            living = batch.filter(pc.and_(pc.invert(batch["_deleted"]), pc.greater(batch["_position"], after)))
            numbers = _numbers(finder, living["_document"])
            for number in np.unique(numbers).tolist():
                if number != WAITING_RANGE and number not in through:
                    continue
                rows = living.filter(pa.array(numbers == number))
                if number != WAITING_RANGE:
                    rows = rows.filter(pc.less_equal(rows["_position"], through[number]))
                documents = rows["_document"].fill_null(b"").to_pylist()
                sums[number] = sums.get(number, RangeDigest()) + RangeDigest.of(documents)
        yield sums_batch(sums)

    return run


def own_rows(batches: Iterator[pa.RecordBatch], prefix: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows whose ``_key`` begins with *prefix*, without it: those of one collection of a tenant table."""
    for batch in batches:
        rows = batch.filter(pc.starts_with(batch["_key"], prefix))
        keys = pc.utf8_slice_codeunits(rows["_key"], len(prefix))
        yield rows.set_column(rows.schema.get_field_index("_key"), "_key", keys)


def in_ranges(bounds: Sequence[bytes], numbers: Collection[int]) -> Batches:
    """Keep the rows whose ``_document`` is in some ranges. *bounds*, *numbers*: as for `listing`."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        finder = RangeFinder(bounds)
        for batch in batches:
            yield batch.filter(pa.array(np.isin(_numbers(finder, batch["_document"]), list(numbers))))

    return run


def identified(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Leave out `DIFFERENCES` without an `_id`: rows that wait for their document, and may be of any range."""
    for batch in batches:
        yield batch.filter(batch["identifier"].is_valid())


def _numbers(finder: RangeFinder, documents: pa.Array) -> Any:
    """Return the range number of each document."""
    numbers = np.full(len(documents), WAITING_RANGE)
    numbers[documents.is_valid().to_numpy(zero_copy_only=False)] = finder.numbers(documents.drop_null())
    return numbers


def sums_batch(sums: Mapping[int, RangeDigest]) -> pa.RecordBatch:
    """Return *sums* (range number → digest) as rows of `SUMS`."""
    rows = [{"number": number, "documents": total.documents, "total": total.to_hex()} for number, total in sums.items()]
    return pa.RecordBatch.from_pylist(rows, schema=SUMS)


def sums_in(batches: Iterable[pa.RecordBatch]) -> dict[int, RangeDigest]:
    """Return the digest of each range. *batches*: rows of `SUMS`, any number for one range."""
    sums = dict[int, RangeDigest]()
    for batch in batches:
        for row in batch.to_pylist():
            part = RangeDigest.from_hex(row["documents"], row["total"])
            sums[row["number"]] = sums.get(row["number"], RangeDigest()) + part
    return sums


def adding(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add the sums of each range: `SUMS` → `SUMS`. All rows of one range are in these batches."""
    yield sums_batch(sums_in(batches))


def listing(bounds: Sequence[bytes], numbers: Collection[int], through: str, after: str) -> Batches:
    """List live documents in some ranges, and every live or deleted row changed after *through*.

    Rows with `FACTS` → `DOCUMENTS`. ``moved`` is true for a change after *through*. A row that waits for its document
    is always listed, with null ``identifier`` and ``digest``.

    Args:
        bounds: Boundaries between the ranges, in MongoDB's sort order.
        numbers: Numbers of the ranges to list.
        through: Position at which the source is read.
        after: As for `summing`.
    """
    listed = [WAITING_RANGE, *numbers]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        finder = RangeFinder(bounds)
        for batch in batches:
            rows = batch.filter(pc.greater(batch["_position"], after))
            is_moved = pc.greater(rows["_position"], through)
            is_own = pa.array(np.isin(_numbers(finder, rows["_document"]), listed))
            rows = rows.filter(pc.or_(is_moved, pc.and_(is_own, pc.invert(rows["_deleted"]))))
            yield _documents_batch(rows["_document"].to_pylist(), rows["_key"], rows["_position"], through)

    return run


def _documents_batch(
    documents: Sequence[bytes | None], keys: pa.Array, positions: pa.Array, through: str
) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            keys,
            positions,
            pc.greater(positions, through),
            pa.array([None if document is None else id_document(document) for document in documents], _BYTES),
            pa.array([None if document is None else digest(document) for document in documents], _BYTES),
        ],
        schema=DOCUMENTS,
    )


def source_batch(documents: Sequence[bytes], keys: Sequence[str]) -> pa.RecordBatch:
    """Return *documents* of the source as rows of `DOCUMENTS`."""
    return _documents_batch(documents, pa.array(keys, _TEXT), pa.nulls(len(keys), _TEXT), "")


def comparing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Find the documents that differ between the source and silver: `DOCUMENTS` of both sides → `DIFFERENCES`.

    ``kind`` is ``missing`` or ``extra`` in silver, or ``different``; ``position`` is that of silver's row. Rows with
    ``moved`` are not compared. All rows of one key are in these batches: at most one of each side.
    """
    rows = pa.Table.from_batches(batches, DOCUMENTS)
    in_source = rows["position"].is_null()
    source, silver = rows.filter(in_source).drop(["position", "moved"]), rows.filter(pc.invert(in_source))
    both = silver.join(source, "key", join_type="full outer", right_suffix=" in source")
    is_same = pc.equal(both["digest"], both["digest in source"]).fill_null(False)
    is_missing, is_extra = both["position"].is_null(), both["digest in source"].is_null()
    is_moved = both["moved"].fill_null(False)
    kinds = pc.case_when(
        pc.make_struct(is_missing, pc.or_(is_moved, is_same), is_extra),
        "missing",
        pa.scalar(None, _TEXT),
        "extra",
        "different",
    )
    identifiers = pc.coalesce(both["identifier in source"], both["identifier"])
    differences = pa.table([both["key"], kinds, identifiers, both["position"]], DIFFERENCES.names)
    yield from differences.filter(kinds.is_valid()).to_batches()


def reporting(constants: Mapping[str, Any]) -> Batches:
    """Make rows of ``control.reconcile`` (`REPORT`) of *constants* and the columns that the batches have."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = [
                batch[field.name]
                if field.name in batch.schema.names
                else pa.array([constants.get(field.name)] * len(batch), field.type)
                for field in REPORT
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=REPORT)

    return run
