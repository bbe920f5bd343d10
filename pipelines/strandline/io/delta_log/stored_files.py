"""Data files of a version of a table, and the keys that they hold. No Spark."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Final, overload
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from strandline.io.delta_log.table_folder import TableFolder
from strandline.model.query import DATAFUSION

_ABOVE_ALL: Final = "\U0010ffff" * 33
"""A text above all bounds, which have 32 characters, or a few more."""


@dataclass(frozen=True)
class StoredFile:
    """A data file of a version."""

    path: str
    """Path as the log has it: below the table, URL-encoded."""
    size: int
    """Bytes."""
    smallest: str | None
    largest: str | None
    """Bounds of the key column. None: unknown, or no text."""
    first_match: int | None = None
    """Number of rows before the first one whose key a batch has. None: not known."""

    def overlaps(self, other: StoredFile) -> bool:
        """Return True if both files may hold the same key."""
        if None in (self.smallest, self.largest, other.smallest, other.largest):
            return True
        return self.smallest <= other.largest and other.smallest <= self.largest  # type: ignore[operator]  # why: as above


def files_with(files: Sequence[StoredFile], keys: pa.ChunkedArray) -> Iterator[tuple[StoredFile, pa.Array]]:
    """Yield the files that may hold one of the *keys*, by their statistics, each with these keys, sorted."""
    bounds = pc.min_max(keys).as_py()
    batch = StoredFile("", 0, bounds["min"], bounds["max"])
    near = [file for file in files if file.overlaps(batch)]
    if not near or bounds["min"] is None:
        return
    distinct = pc.unique(keys)
    ordered = distinct.take(pc.array_sort_indices(distinct))
    for file in near:
        if len(few := _between(ordered, file.smallest, file.largest)):
            yield file, few


def find_keys(
    folder: TableFolder, files: Sequence[StoredFile], keys: pa.ChunkedArray, column: str
) -> Iterator[tuple[StoredFile, pa.Array]]:
    """I/O: reads the key *column* of the files that may hold one of the *keys*.

    Yields:
        Each file that holds one of them, with its ``first_match``, and the keys that it holds.

    Raises:
        FileNotFoundError: There is no such file.
        ArrowException: A file is damaged.
    """
    for file, few in files_with(files, keys):
        first, matches = None, []
        with pq.ParquetFile(folder.source(unquote(file.path))) as parquet:
            rows = [0, *accumulate(parquet.metadata.row_group(n).num_rows for n in range(parquet.num_row_groups))]
            for number, some in row_groups_with(parquet.metadata, few, column).items():
                values = parquet.read_row_group(number, [column], use_threads=False)[column].cast(pa.string())
                is_match = pc.is_in(values, some)
                place = pc.index(is_match, True).as_py()
                first = rows[number] + place if first is None and place >= 0 else first
                matches += values.filter(is_match).chunks
        if first is not None:
            yield replace(file, first_match=first), pa.chunked_array(matches).combine_chunks()


def row_groups_with(footer: pq.FileMetaData, keys: pa.Array, column: str) -> dict[int, pa.Array]:
    """Return the numbers of the row groups that may hold one of the sorted *keys* of *column*, each with these keys."""
    near = {n: _between(keys, *_bounds(footer.row_group(n), column)) for n in range(footer.num_row_groups)}
    return {number: some for number, some in near.items() if len(some)}


def _bounds(group: pq.RowGroupMetaData, name: str) -> tuple[str | None, str | None]:
    """Return the bounds of a text column by its statistics. None: unknown."""
    for column in map(group.column, range(group.num_columns)):
        statistics = column.statistics
        if column.path_in_schema == name and statistics is not None and statistics.has_min_max:
            return statistics.min, statistics.max
    return None, None


def _between(keys: pa.Array, smallest: str | None, largest: str | None) -> pa.Array:
    """Return the sorted *keys* within bounds. None: there is no bound."""
    texts = _Texts(keys)
    first = 0 if smallest is None else bisect_left(texts, smallest)
    return keys[first : len(keys) if largest is None else bisect_right(texts, largest)]


def groups_of(
    files: Sequence[StoredFile], size_of: Callable[[StoredFile], int], most_bytes: int
) -> list[list[StoredFile]]:
    """Return *files* in groups, in the order of their keys. A file of a group has no key of another group.

    Args:
        size_of: Bytes of a file.
        most_bytes: Bytes of a group, if its files do not have to be together.
    """
    groups: list[list[StoredFile]] = []
    size, largest = 0, ""
    for file in sorted(files, key=lambda file: file.smallest or ""):
        own = size_of(file)
        if not groups or (size + own > most_bytes and file.smallest is not None and file.smallest > largest):
            groups.append([])
            size = 0
        groups[-1].append(file)
        size, largest = size + own, max(largest, _ABOVE_ALL if file.largest is None else file.largest)
    return groups


def ranges_of(files: Sequence[StoredFile], column: str) -> str:
    """Return the condition on target rows that lets delta-rs skip all files but *files*, and those that overlap them.

    Args:
        column: The key.
    """
    key, ranges = f"t.{DATAFUSION.name(column)}", set()
    for file in files:
        if file.smallest is None or file.largest is None:
            return "TRUE"
        ranges.add(f"{key} BETWEEN {DATAFUSION.text(file.smallest)} AND {DATAFUSION.text(file.largest)}")
    return " OR ".join(sorted(ranges)) or "FALSE"


class _Texts(Sequence[str]):
    """Texts of an array, one at a time: `bisect` needs few of them."""

    def __init__(self, values: pa.Array) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def __getitem__(self, at: int) -> str: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...

    def __getitem__(self, at: Any) -> Any:
        return self._values[at].as_py()
