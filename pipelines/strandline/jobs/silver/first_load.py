"""The first rows of a silver table, read, typed and written by threads of this process in one commit. No Spark job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from strandline.io.delta_log.appended_rows import AppendedFile, appended_parts
from strandline.io.delta_log.mergeable_table import MergeableTable
from strandline.io.delta_log.parquet_file import DataFile
from strandline.jobs.parallel_map import parallel_map
from strandline.jobs.silver.bronze_rows import BronzeRows
from strandline.model.merge_rule import Merged
from strandline.model.namespaces import Namespace
from strandline.model.shape import Shape
from strandline.silver.batch_profile import BatchProfile, ProfilePart
from strandline.silver.first_rows import FirstRows, RepeatedKeys, row_groups
from strandline.silver.latest import READS
from strandline.silver.small_batch import BATCH, changes_of, profiled

R = TypeVar("R")

_COLUMNS: Final = pa.schema(
    [BATCH.field(name) for name in ("db", "collection", "operation_type", *READS) if name in BATCH.names]
)
_NEWEST: Final = {"position", "cluster_time", "collection_uuid"}
_PROFILED: Final = pa.schema([field for field in _COLUMNS if field.name not in _NEWEST])
_KEYS: Final = pa.schema([BATCH.field(name) for name in ("key", "document_size")])
_GROUP: Final = 128 << 20
"""Bytes of the files of bronze from which one thread makes a data file, at most."""


@dataclass(frozen=True)
class FirstLoad:
    """Loads a collection into its table, which has no row yet. Raises as `appended_parts`."""

    namespace: Namespace
    rows: BronzeRows
    after: int
    """Version of bronze above which the rows are read."""
    exact_updates: bool

    def _of_each_group(self, work: Callable[[Sequence[AppendedFile]], R]) -> list[R]:
        """Return the result of *work* for each group, in order. Threads do it."""
        with ThreadPoolExecutor(pa.cpu_count(), thread_name_prefix="strandline-first-load") as pool:
            return parallel_map(pool, work, self._groups)

    @cached_property
    def _files(self) -> list[AppendedFile]:
        return [file for file in self.rows.files if file.version > self.after]

    @cached_property
    def _groups(self) -> list[list[AppendedFile]]:
        """Neighbouring files, in as many groups as there are processors, or more."""
        limit = min(_GROUP, sum(file.size for file in self._files) // pa.cpu_count())
        groups: list[list[AppendedFile]] = []
        size = limit
        for file in self._files:
            if size >= limit:
                groups.append([])
                size = 0
            groups[-1].append(file)
            size += file.size
        return groups

    def _changes(self, files: Sequence[AppendedFile], columns: pa.Schema = _COLUMNS) -> Iterator[pa.Table]:
        """Yield the changes of the collection, some megabytes of bronze at a time."""
        equal = {"db": self.namespace.db, "collection": self.namespace.collection}
        for file in files:
            for part in appended_parts(self.rows.folder, file, columns, equal):
                rows = changes_of(part, self.namespace, self.after, exact_updates=self.exact_updates)
                if rows.num_rows:
                    yield rows

    def profile(self, max_depth: int) -> tuple[BatchProfile, RepeatedKeys]:
        """I/O: reads the rows. Returns their profile, and the keys that more than one of them has."""

        def of_files(files: Sequence[AppendedFile]) -> tuple[ProfilePart, list[pa.Table]]:
            part, keys = ProfilePart(), []
            for changes in self._changes(files, _PROFILED):
                part.merge(ProfilePart.of(profiled(changes), max_depth))
                keys.append(changes.select(_KEYS.names))
            return part, keys

        whole, keys = ProfilePart(), [_KEYS.empty_table()]
        for part, some in self._of_each_group(of_files):
            whole.merge(part)
            keys += some
        return whole.profile(), RepeatedKeys.among(pa.concat_tables(keys))

    def write(
        self, table: MergeableTable, shape: Shape, repeated: RepeatedKeys, *, hard_deletes: bool
    ) -> tuple[Merged | None, str | None]:
        """I/O: reads the rows; writes them into data files, and commits them as one version of *table*.

        Returns:
            The numbers of rows, None if another commit came first; and the smallest position of a row that is no
            tombstone.
        """
        rows, oldest = FirstRows(repeated, shape, hard_deletes), []

        def write(parts: Iterator[pa.Table]) -> list[DataFile]:
            def noted() -> Iterator[pa.Table]:
                for part in parts:
                    oldest.append(pc.min(part.filter(pc.invert(part["_deleted"]))["_position"]).as_py())
                    yield part

            return table.write(row_groups(noted()))

        def written(files: Sequence[AppendedFile]) -> list[DataFile]:
            single = map(rows.single, self._changes(files))
            return write(part for part in single if part is not None)

        new = [file for files in self._of_each_group(written) for file in files]
        if len(repeated.keys):
            some = pa.concat_tables(rows.of_repeated(changes) for changes in self._changes(self._files))
            new += write(iter([rows.others(some)]))
        return table.load(new), min((position for position in oldest if position is not None), default=None)
