"""Changes of one collection in bronze, read, counted, typed and written by threads of this process. No Spark job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, groupby
from operator import itemgetter
from typing import Final, TypeAlias, TypeVar

import pyarrow as pa

from strandline.io.delta_log.appended_rows import AppendedFile, appended_parts
from strandline.io.delta_log.mergeable_table import MergeableTable
from strandline.io.delta_log.parquet_file import Budget, DataFile
from strandline.jobs.parallel_map import parallel_map
from strandline.jobs.silver.bronze_rows import PART, BronzeRows
from strandline.model.namespaces import Namespace
from strandline.silver.batch_profile import BatchProfile, ProfilePart
from strandline.silver.batch_rows import BatchRows, HeldKeys, row_groups, state_of_held
from strandline.silver.latest import READS
from strandline.silver.small_batch import BATCH, changes_of, profiled

P = TypeVar("P")
R = TypeVar("R")
_Group: TypeAlias = Sequence[AppendedFile | pa.Table]

_COLUMNS: Final = pa.schema(
    [BATCH.field(name) for name in ("db", "collection", "operation_type", *READS) if name in BATCH.names]
)
_NEWEST: Final = {"position", "cluster_time", "collection_uuid"}
_PROFILED: Final = pa.schema([field for field in _COLUMNS if field.name not in _NEWEST])
_KEY: Final = pa.schema([BATCH.field(name) for name in ("db", "collection", "op", "operation_type", "key")])
_KEYS: Final = pa.schema([BATCH.field(name) for name in ("key", "document_size")])
_HELD_BYTES: Final = 256 << 20
"""Bytes of the changes that are held in memory together."""
_GROUP: Final = 128 << 20
"""Bytes of the files of bronze from which one thread makes a data file, at most."""
_ROWS: Final = 5_000
"""Rows in memory whose documents are decoded together."""
_LEAST_ROWS, _MOST_ROWS = 20_000, 1_000_000
"""Rows in memory from which one thread makes a data file."""


@dataclass(frozen=True)
class DirectBatch:
    """Changes of some collections, read in parts as often as they are needed. Raises as `appended_parts`."""

    collections: Sequence[Namespace]
    rows: BronzeRows
    after: int
    """Version of bronze above which the rows are read."""
    exact_updates: bool
    are_tenants: bool = False
    """True: the keys are those of a tenant table."""

    def _of_each_group(self, work: Callable[[_Group], R]) -> list[R]:
        """Return the result of *work* for each group, in order. Threads do it."""
        with ThreadPoolExecutor(pa.cpu_count(), thread_name_prefix="strandline-batch") as pool:
            return parallel_map(pool, work, self._groups)

    @cached_property
    def _files(self) -> list[AppendedFile]:
        return [file for file in self.rows.files if file.version > self.after]

    @property
    def is_in_memory(self) -> bool:
        """True if the rows were read once, for all tables."""
        return self.rows.few is not None

    @cached_property
    def _groups(self) -> Sequence[_Group]:
        """Neighbouring parts of files, or of the rows in memory, in groups of one size.

        So all threads end at about the same time.
        """
        if self.rows.few is None:
            parts = [part for file in self._files for part in file.cut(PART)]
            return _grouped(parts, [part.size for part in parts], PART, _GROUP)
        tables = [self.rows.few[name] for name in map(str, self.collections) if name in self.rows.few]
        slices = [table.slice(first, _ROWS) for table in tables for first in range(0, table.num_rows, _ROWS)]
        return _grouped(slices, [part.num_rows for part in slices], _LEAST_ROWS, _MOST_ROWS)

    def _changes(self, group: _Group, columns: pa.Schema = _COLUMNS) -> Iterator[pa.Table]:
        """Yield the changes of the collections, some megabytes of bronze at a time."""
        names = {name: {one[part] for one in self.collections} for part, name in enumerate(Namespace._fields)}
        equal = {name: only for name, (only, *others) in names.items() if not others}
        parts = (
            [one] if isinstance(one, pa.Table) else appended_parts(self.rows.folder, one, columns, equal)
            for one in group
        )
        for part in chain.from_iterable(parts):
            rows = changes_of(
                part,
                self.collections,
                self.after,
                exact_updates=self.exact_updates,
                are_tenants=self.are_tenants,
            )
            if rows.num_rows:
                yield rows

    def profile(self, max_depth: int) -> tuple[BatchProfile, pa.Table]:
        """I/O: reads the rows. Returns their profile, and ``key`` and ``document_size`` of each change."""

        def of_group(group: _Group) -> tuple[ProfilePart, list[pa.Table]]:
            part, keys = ProfilePart(), []
            for changes in self._changes(group, _PROFILED):
                part.merge(ProfilePart.of(profiled(changes), max_depth))
                keys.append(changes.select(_KEYS.names))
            return part, keys

        whole, keys = ProfilePart(), [_KEYS.empty_table()]
        for part, some in self._of_each_group(of_group):
            whole.merge(part)
            keys += some
        return whole.profile(), pa.concat_tables(keys)

    def keys(self) -> pa.ChunkedArray:
        """I/O: reads the rows. Returns the key of each change."""

        def of_group(group: _Group) -> list[pa.ChunkedArray]:
            return [changes["key"] for changes in self._changes(group, _KEY)]

        parts = chain.from_iterable(self._of_each_group(of_group))
        return pa.chunked_array(list(chain.from_iterable(part.chunks for part in parts)), pa.string())

    def state_of(self, held: HeldKeys) -> tuple[pa.Table, pa.Table]:
        """I/O: reads the rows. Returns the changes of the *held* keys, and their state: see `state_of`.

        Raises TooLarge above 256 MiB: updates without their document count here only.
        """
        budget = Budget(_HELD_BYTES)

        def of_group(group: _Group) -> list[pa.Table]:
            parts = []
            for changes in self._changes(group):
                parts.append(held.changes(changes).select(READS))
                budget.spend(parts[-1].nbytes)
            return parts

        changes = pa.concat_tables(chain.from_iterable(self._of_each_group(of_group)))
        return changes, state_of_held(changes)

    def write_single(self, table: MergeableTable, rows: BatchRows) -> list[DataFile]:
        """I/O: reads the rows; writes those of keys that are not held into data files, which *table* does not know yet.

        They are in the order of bronze.
        """

        def written(group: _Group) -> list[DataFile]:
            single = map(rows.single, self._changes(group))
            return table.write(row_groups(part for part in single if part is not None))

        return list(chain.from_iterable(self._of_each_group(written)))


def _grouped(parts: Sequence[P], sizes: Sequence[int], least: int, most: int) -> Sequence[Sequence[P]]:
    """Return neighbouring *parts* in groups: as many for each processor, of *least* to *most* each."""
    total, processors = sum(sizes), pa.cpu_count()
    count = processors * -(-total // (most * processors))
    size = max(least, -(-total // max(1, count)))
    numbered = zip(((end - 1) // size for end in accumulate(sizes)), parts, strict=True)
    return [[part for _, part in some] for _, some in groupby(numbered, key=itemgetter(0))]
