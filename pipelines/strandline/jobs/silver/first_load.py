"""The first rows of a silver table, read, typed and written by threads of this process in one commit. No Spark job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Final, TypeVar

import pyarrow as pa

from strandline.io.delta_log.appended_rows import AppendedFile, appended_files, appended_parts
from strandline.io.delta_log.file_statistics import STATISTICS, has_bounds
from strandline.io.delta_log.log_commit import addition, commit_info, put_commit
from strandline.io.delta_log.mergeable_table import ONLY_SPARK, MergeableTable
from strandline.io.delta_log.parquet_file import DataFile, conformed, write_data_file
from strandline.io.delta_log.table_folder import TableFolder
from strandline.io.spark.conflicts import OvertakenError
from strandline.io.tables.delta_rs_tables import table_errors
from strandline.io.tables.table_swap import CHANGE_FEED
from strandline.jobs.context import JobContext
from strandline.jobs.lake_context import tables_here
from strandline.jobs.parallel_map import parallel_map
from strandline.jobs.silver.bronze_state import BronzeState
from strandline.model.merge_rule import Merged
from strandline.model.namespaces import Namespace
from strandline.model.shape import Shape
from strandline.model.tables import TableName
from strandline.silver.batch_profile import BatchProfile, ProfilePart
from strandline.silver.first_rows import FirstRows, RepeatedKeys, row_groups
from strandline.silver.latest import READS
from strandline.silver.silver_table import OpenedTable
from strandline.silver.small_batch import BATCH, changes_of, profiled

R = TypeVar("R")

_MOST_ROWS: Final = 10_000_000
"""The keys of all rows are in memory: some 60 bytes each."""
_READ: Final = pa.schema(
    [BATCH.field(name) for name in ("db", "collection", "operation_type", *READS) if name in BATCH.names]
)
_NEWEST: Final = {"position", "cluster_time", "collection_uuid"}
_PROFILED: Final = pa.schema([field for field in _READ if field.name not in _NEWEST])
_KEYS: Final = pa.schema([BATCH.field(name) for name in ("key", "document_size")])
_FILE: Final = 128 << 20
"""Size of a data file in bytes."""


@dataclass(frozen=True)
class FirstLoad:
    """Loads a collection into its table, which has no row yet."""

    ctx: JobContext
    namespace: Namespace
    bronze: BronzeState
    stored: MergeableTable
    folder: TableFolder
    """Folder of bronze."""
    files: Sequence[AppendedFile]
    """Data files of bronze that the load reads."""
    after: int

    @staticmethod
    def of(
        ctx: JobContext, namespace: Namespace, bronze: BronzeState, table: TableName, opened: OpenedTable, after: int
    ) -> FirstLoad | None:
        """I/O: reads the logs of bronze and of *table*. None: Spark must merge, because this process cannot."""
        tables = tables_here(ctx.settings) if ctx.settings.silver.engine == "auto" else None
        if tables is None or opened.progress is not None or opened.compatibility != "portable":
            return None
        with table_errors(table):
            try:
                stored = MergeableTable.open(tables.folder(table), key="_key")
            except ONLY_SPARK:
                return None
        if stored is None or stored.files or stored.properties.get(CHANGE_FEED) != "true" or not _has_bounds(stored):
            return None
        folder = tables.folder(bronze.table)
        with table_errors(bronze.table):
            files = appended_files(folder, after, bronze.through.version, _MOST_ROWS)
        return FirstLoad(ctx, namespace, bronze, stored, folder, files, after) if files else None

    def _of_each_group(self, work: Callable[[Sequence[AppendedFile]], R]) -> list[R]:
        """Return the result of *work* for each group, in order. Threads do it."""
        with ThreadPoolExecutor(pa.cpu_count(), thread_name_prefix="strandline-first-load") as pool:
            return parallel_map(pool, work, self._groups)

    @cached_property
    def _groups(self) -> list[list[AppendedFile]]:
        """Neighbouring files, in as many groups as there are processors, or more."""
        limit = min(_FILE, sum(file.size for file in self.files) // pa.cpu_count())
        groups: list[list[AppendedFile]] = []
        size = limit
        for file in self.files:
            if size >= limit:
                groups.append([])
                size = 0
            groups[-1].append(file)
            size += file.size
        return groups

    def _changes(self, files: Sequence[AppendedFile], columns: pa.Schema = _READ) -> Iterator[pa.Table]:
        """Yield the changes of the collection, one row group of bronze at a time."""
        equal = {"db": self.namespace.db, "collection": self.namespace.collection}
        for file in files:
            for part in appended_parts(self.folder, file, columns, equal):
                rows = changes_of(part, self.namespace, self.after, exact_updates=self.bronze.exact_updates)
                if rows.num_rows:
                    yield rows

    def profile(self) -> tuple[BatchProfile, RepeatedKeys] | None:
        """I/O: reads the rows. Returns their profile, and the keys that more than one of them has.

        None: the rows cannot be read from the files.
        """
        depth = self.ctx.settings.silver.max_depth

        def of_files(files: Sequence[AppendedFile]) -> tuple[ProfilePart, list[pa.Table]]:
            part, keys = ProfilePart(), []
            for changes in self._changes(files, _PROFILED):
                part.merge(ProfilePart.of(profiled(changes), depth))
                keys.append(changes.select(_KEYS.names))
            return part, keys

        whole, keys = ProfilePart(), [_KEYS.empty_table()]
        try:
            parts = self._of_each_group(of_files)
        except (FileNotFoundError, pa.ArrowException):
            return None
        for part, some in parts:
            whole.merge(part)
            keys += some
        return whole.profile(), RepeatedKeys.among(pa.concat_tables(keys))

    def write(self, shape: Shape, repeated: RepeatedKeys) -> Merged:
        """I/O: writes the rows into data files, and commits them as one version.

        Raises:
            OvertakenError: Another commit came first. Nothing was changed.
        """
        table = MergeableTable.open(self.stored.folder, key="_key")  # with the columns that were added
        if table is None or table.files:
            raise OvertakenError(f"another process has changed {self.stored.folder.uri}", next_step="strandline silver")
        rows = FirstRows(repeated, shape, self.ctx.settings.silver.deletes == "hard")

        def written(files: Sequence[AppendedFile]) -> list[DataFile]:
            single = map(rows.single, self._changes(files))
            return list(_data_files(table, (part for part in single if part is not None)))

        new = [file for files in self._of_each_group(written) for file in files]
        if len(repeated.keys):
            some = pa.concat_tables(rows.of_repeated(changes) for changes in self._changes(self.files))
            new += _data_files(table, iter([rows.others(some)]))
        count = sum(file.rows for file in new)
        loaded = Merged(count, 0, 0, commits=1)
        table.folder.sync("")
        actions = [
            commit_info("MERGE", {}, {"numTargetRowsInserted": count, "numOutputRows": count}),
            *(addition(file, changes_data=True) for file in new),
        ]
        if not put_commit(table.folder, table.version + 1, actions):
            for file in new:
                table.folder.remove(file.name)
            raise OvertakenError(f"another process has changed {table.folder.uri}", next_step="strandline silver")
        return loaded


def _statistics_of(table: MergeableTable) -> list[str]:
    """Return the columns with file statistics that the table names."""
    return [name for name in table.properties.get(STATISTICS, "").split(",") if name]


def _has_bounds(table: MergeableTable) -> bool:
    """Return True if this process can make the statistics that the table names."""
    names = _statistics_of(table)
    return all(name in table.schema.names and has_bounds(table.schema.field(name).type) for name in names)


def _data_files(table: MergeableTable, parts: Iterator[pa.Table]) -> Iterator[DataFile]:
    """I/O: writes *parts* into files of at most some hundred megabytes."""
    statistics = _statistics_of(table)
    groups = row_groups(conformed(part, table.schema) for part in parts)
    while (group := next(groups, None)) is not None:
        following = chain([group], groups)
        yield write_data_file(
            table.folder, table.schema, following, statistics_of=statistics, dictionaries=[], end_at=_FILE
        )
