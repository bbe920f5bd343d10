"""The rows of bronze above a version, read in this process. No Spark job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from strandline.io.delta_log.appended_rows import (
    AppendedFile,
    appended_files,
    appended_parts,
    appended_rows,
    files_of_version,
)
from strandline.io.delta_log.table_folder import TableFolder
from strandline.io.tables.delta_rs_tables import DeltaRsTables, table_errors
from strandline.jobs.parallel_map import parallel_map
from strandline.model.tables import TableName
from strandline.silver.bronze_increment import BronzeIncrement
from strandline.silver.increment_groups import Group, groups_in
from strandline.silver.small_batch import BATCH, rows_by_collection

_MOST_ROWS: Final = 10_000_000
"""This process holds the keys of all rows: some 60 bytes each."""
_FEW_BYTES: Final = 64 << 20
"""Bytes of a batch whose rows are read once, for all tables. Not compressed."""
_LEAST_RATIO: Final = 2
"""Files of bronze have so many times their size, not compressed, at least."""
PART: Final = 8 << 20
"""Bytes of a part of a file, for one thread."""
_LONG: Final = {"envelope", "key", "document_size", "cluster_time"}
_WITHOUT_DOCUMENTS: Final = pa.schema([field for field in BATCH if field.name not in _LONG])


@dataclass(frozen=True)
class BronzeRows:
    """Rows that bronze received above a version."""

    tables: DeltaRsTables
    folder: TableFolder
    """Folder of bronze."""
    files: Sequence[AppendedFile]
    few: Mapping[str, pa.Table] | None
    """Rows of each collection: columns of `BATCH`, and ``_commit_version``. None: they are too many for memory."""
    increment: BronzeIncrement

    @staticmethod
    def read(tables: DeltaRsTables, bronze: TableName, after: int, through: int) -> BronzeRows | None:
        """I/O: reads the bronze versions above *after* up to *through*: of many rows, all columns but the documents.

        Of all of bronze (*after* is -1), compaction and log clean-up may have left only the files of version *through*.
        Then every row counts as one of that version.

        None: the rows are more than ten million, or not known from the files that bronze's log names.
        """
        folder = tables.folder(bronze)
        with table_errors(bronze):
            content = _content(folder, appended_files(folder, after, through, _MOST_ROWS))
            if content is None and after < 0:
                content = _content(folder, files_of_version(folder, through, _MOST_ROWS))
        if content is None:
            return None
        files, few, groups = content
        return BronzeRows(tables, folder, files, few, BronzeIncrement.of_groups(groups, tables, bronze, after))


def _content(
    folder: TableFolder, files: Sequence[AppendedFile] | None
) -> tuple[Sequence[AppendedFile], Mapping[str, pa.Table] | None, list[Group]] | None:
    """I/O: reads *files*. Returns them, their rows if they are few, and the groups. None: a file is gone."""
    if files is None:
        return None
    try:
        is_small = sum(file.size for file in files) * _LEAST_RATIO <= _FEW_BYTES
        few = appended_rows(folder, files, BATCH, _FEW_BYTES) if is_small else None
        if few is None:
            return files, None, _groups_of(folder, files)
        return files, rows_by_collection(few), list(groups_in(few))
    except (FileNotFoundError, pa.ArrowException):
        return None


def _groups_of(folder: TableFolder, files: Sequence[AppendedFile]) -> list[Group]:
    """I/O: reads the rows of *files*, without documents, by threads. Returns their groups: see `groups_in`."""

    def of_file(file: AppendedFile) -> list[Group]:
        return list(chain.from_iterable(map(groups_in, _without_documents(folder, file))))

    parts = [part for file in files for part in file.cut(PART)]
    with ThreadPoolExecutor(pa.cpu_count(), thread_name_prefix="strandline-bronze") as pool:
        return list(chain.from_iterable(parallel_map(pool, of_file, parts)))


def _without_documents(folder: TableFolder, file: AppendedFile) -> Iterator[pa.Table]:
    """I/O: yields the rows of a file, without documents. Drops, renames and creations have their ``envelope``."""
    holds_events = False
    for part in appended_parts(folder, file, _WITHOUT_DOCUMENTS, {}):
        is_event = pc.equal(part["op"], "ddl")
        holds_events |= pc.any(is_event).as_py()
        yield part.filter(pc.invert(is_event))
    for part in appended_parts(folder, file, BATCH, {"op": "ddl"}) if holds_events else ():
        yield part.filter(pc.equal(part["op"], "ddl"))
