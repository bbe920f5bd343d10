"""Rows of a bronze table, gathered by collection with bounded memory.

Rows are collected in runs. A run is sorted by (db, collection, position) and spilled piece by piece. A piece holds rows
of one collection, or of several small ones. Then each collection is read from the pieces, in the order of their runs.
"""

from __future__ import annotations

import tempfile
from array import array
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

Collection = tuple[str, str]
"""Database and collection. Both are empty for control rows, which have no collection."""

SORT_KEY: Final = ("db", "collection", "position")

_MIB: Final = 1 << 20
_PIECE_BYTES: Final = 4 * _MIB
_SHARED_PIECE_BYTES: Final = _MIB // 8
"""Maximum of a piece with several collections. One such piece of each run is in memory while pieces are read."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of a sorted rewrite, in bytes. All but *file* are bytes of Arrow."""

    run: int = 48 * _MIB
    """Maximum of the rows that are sorted at once."""
    row_group: int = 32 * _MIB
    """Size at which a row group ends."""
    shared: int = 4 * _MIB
    """Maximum of a row group with several collections. Small collections share one: each row group costs some 5 kB of
    Parquet footer, which every reader of the file reads."""
    file: int = 128 * _MIB
    """Size at which a data file ends, in bytes of Parquet."""


class GatheredRows:
    """Rows of one schema, spilled to an unnamed file. The operating system removes it, even after a kill.

    Args:
        folder: Folder of the unnamed file. None: the folder for temporary files.
        schema: Schema of all rows. It has the columns of `SORT_KEY`.
    """

    def __init__(self, folder: str | None, schema: pa.Schema, sizes: Sizes) -> None:
        self.rows = 0
        self._schema, self._sizes = schema, sizes
        self._run: list[pa.RecordBatch] = []
        self._run_bytes = 0
        self._places: defaultdict[Collection, array[int]] = defaultdict(lambda: array("q"))
        """By collection: number of a piece, first row in the piece, number of rows; and so on for further pieces."""
        self._bytes: defaultdict[Collection, int] = defaultdict(int)
        self._pieces = 0
        self._file = tempfile.TemporaryFile(dir=folder, prefix="_sorting-")  # noqa: SIM115  # why: `__exit__` closes it
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        self._writer = pa.ipc.new_file(self._file, schema, options=options)

    def __enter__(self) -> GatheredRows:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, rows: pa.RecordBatch) -> None:
        """I/O: adds *rows*; writes a run to the file when it is full."""
        if not rows.num_rows:
            return
        self.rows += rows.num_rows
        self._run.append(rows)
        self._run_bytes += rows.nbytes
        if self._run_bytes >= self._sizes.run:
            self._spill()

    def row_groups(self) -> Iterator[pa.RecordBatch]:
        """I/O: yields all rows, in the order of collections. To be called once, after all rows are added.

        A batch holds rows of one collection, or of several small ones. Its rows are sorted by `SORT_KEY`.
        """
        self._spill()
        self._writer.close()
        reader = pa.ipc.open_file(self._file)
        opened: dict[int, pa.RecordBatch] = {}
        pending: list[pa.RecordBatch] = []
        size = 0
        for collection in sorted(self._places):
            if pending and size + self._bytes[collection] > self._sizes.shared:
                yield _sorted(pending, self._schema)[0]
                size = 0
            for rows in self._rows(reader, opened, collection):
                pending.append(rows)
                size += rows.nbytes
                if size >= self._sizes.row_group:
                    yield _sorted(pending, self._schema)[0]
                    size = 0
        if pending:
            yield _sorted(pending, self._schema)[0]

    def _rows(self, reader: Any, opened: dict[int, pa.RecordBatch], collection: Collection) -> Iterator[pa.RecordBatch]:
        """Yield the rows of *collection*. A piece stays in *opened* until its last collection is read."""
        places = iter(self._places.pop(collection))
        for number, first, rows in zip(places, places, places, strict=True):
            piece = opened.pop(number, None) or reader.get_batch(number)
            if first + rows < piece.num_rows:
                opened[number] = piece
            yield piece.slice(first, rows)

    def _spill(self) -> None:
        if not self._run:
            return
        run, starts, collections = _sorted(self._run, self._schema)
        self._run_bytes = begin = held = 0
        for first, end, collection in zip(starts, [*starts[1:], run.num_rows], collections, strict=True):
            size = run.slice(first, end - first).nbytes
            self._bytes[collection] += size
            if held + size > _SHARED_PIECE_BYTES:
                self._write(run, begin, first)
                begin, held = first, 0
            held += size
            step = max(1, (end - first) * _PIECE_BYTES // size)
            while end - begin > step and size > _SHARED_PIECE_BYTES:
                self._places[collection].extend((self._pieces, 0, step))
                self._write(run, begin, begin + step)
                begin += step
            place = max(first, begin)
            self._places[collection].extend((self._pieces, place - begin, end - place))
        self._write(run, begin, run.num_rows)

    def _write(self, run: pa.RecordBatch, begin: int, end: int) -> None:
        if end > begin:
            self._writer.write_batch(run.slice(begin, end - begin))
            self._pieces += 1


def _one_batch(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of *batches* as one batch, and empty the list: its memory is needed."""
    table = pa.Table.from_batches(batches, schema)
    batches.clear()
    (batch,) = table.combine_chunks().to_batches()
    del table
    pa.default_memory_pool().release_unused()  # the pool keeps the memory of the parts otherwise
    return batch


def _sorted(batches: list[pa.RecordBatch], schema: pa.Schema) -> tuple[pa.RecordBatch, list[int], list[Collection]]:
    """Return the sorted rows of *batches*, the row at which each collection starts, and the collections.

    Control rows come first. A missing position counts as the smallest. Rows with equal keys keep their order.
    """
    rows = _one_batch(batches, schema)
    db, collection, position = (pc.fill_null(rows[name], "") for name in SORT_KEY)
    in_collection = pc.and_(pc.not_equal(db, ""), pc.not_equal(collection, ""))
    names = [pc.if_else(in_collection, column, "") for column in (db, collection)]
    keys = pa.table([*names, position], names=list(SORT_KEY))
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in SORT_KEY])
    db, collection = (column.take(order) for column in names)
    starts = [0, *_changes(db, collection)]
    collections = list(zip(db.take(starts).to_pylist(), collection.take(starts).to_pylist(), strict=True))
    return rows.take(order), starts, collections


def _changes(*columns: Any) -> list[int]:
    """Return the places at which the value of a column differs from the value before it."""
    first, second = (pc.not_equal(column[1:], column[:-1]) for column in columns)
    return [place + 1 for place in pc.indices_nonzero(pc.or_(first, second)).to_pylist()]
