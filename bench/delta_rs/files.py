"""The files of a Delta table by path, in a folder of this machine or an object store.

delta-rs syncs nothing to the disk, and a store needs nothing synced. So a folder's files are synced here, in the order
that a power cut needs: a data file before the commit that names it, a commit before its batch is reported, a checkpoint
before the commits that it sums up are removed.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake.fs import DeltaStorageHandler

from pipelines.io.file_statistics import FileStatistics

PARTITION: Final = "captured_on"
_LOG: Final = "_delta_log"
_PARQUET_ENDS: Final = b"PAR1"


@dataclass(frozen=True)
class StoredFile:
    """A data file that is written, and not yet part of its table."""

    path: str
    """Below the table, with its day's folder."""
    day: str
    rows: int
    size: int
    """Bytes."""
    modified_ms: int
    statistics: str
    """JSON, as an ``add`` action has it."""


@dataclass(frozen=True)
class TableFolder:
    """Folder and storage options of a table. It can be sent to a worker process.

    Args:
        uri: A folder, or an address of a store.
        options: Of the store, by the library's names.
    """

    uri: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def local(self) -> Path | None:
        """The folder; None in a store."""
        scheme, separator, rest = self.uri.partition("://")
        if not separator:
            return Path(self.uri)
        return Path(rest) if scheme == "file" else None

    def write(
        self,
        day: date,
        schema: pa.Schema,
        parts: Iterable[pa.RecordBatch],
        *,
        statistics_of: Sequence[str],
        dictionaries: Sequence[str],
    ) -> StoredFile:
        """I/O: writes *parts* as one Parquet file of *day*. A commit may name it then.

        VACUUM removes what none names.

        Args:
            schema: Without the column of the day, whose value the folder's name holds.

        Raises:
            FileNotFoundError: The table's folder is gone.
        """
        path, statistics = (
            f"{PARTITION}={day}/part-00000-{uuid.uuid4()}.c000.zstd.parquet",
            FileStatistics(statistics_of),
        )
        try:
            with self._sink(path) as sink:
                with pq.ParquetWriter(
                    sink, schema, compression="zstd", compression_level=1, use_dictionary=list(dictionaries)
                ) as writer:
                    for part in parts:
                        writer.write_batch(part)
                        statistics.add(part)
                sink.flush()
                size = int(sink.tell())
                if self.local is not None:
                    os.fsync(sink.fileno())
        except BaseException:
            if self.local is not None:
                (self.local / path).unlink(missing_ok=True)  # a full disk would fill up with attempts
            raise
        if self.local is not None:
            _sync(self.local / path.partition("/")[0])
        return StoredFile(path, str(day), statistics.rows, size, time.time_ns() // 1_000_000, statistics.to_json())

    def _sink(self, path: str) -> AbstractContextManager[Any]:
        if self.local is None:
            return self._store().open_output_stream(path)  # type: ignore[no-any-return]  # why: pyarrow has no types
        folder = (self.local / path).parent
        try:
            folder.mkdir()  # never its parents: a table that was moved away is not begun anew
        except FileExistsError:
            pass
        else:
            _sync(self.local)
        return (self.local / path).open("xb")

    def _store(self) -> pafs.FileSystem:
        return pafs.PyFileSystem(DeltaStorageHandler(self.uri, dict(self.options)))

    def commit_text(self, version: int) -> str | None:
        """I/O: the commit's file; None where there is none, or it was removed because it is old."""
        name = f"{_LOG}/{version:020}.json"
        try:
            if self.local is not None:
                return (self.local / name).read_text("utf-8")
            with self._store().open_input_file(name) as file:
                return bytes(file.read()).decode("utf-8")
        except FileNotFoundError:
            return None

    def sync_created(self) -> None:
        """I/O: a table that was created is on the disk."""
        if self.local is not None:
            self.sync_commits([0])
            _sync(self.local)
            _sync(self.local.parent)

    def sync_commits(self, versions: Iterable[int]) -> None:
        """I/O: these commits are on the disk, others' as well: one that is lost would tear the log before one's own."""
        if self.local is None:
            return
        for version in versions:
            _sync(self.local / _LOG / f"{version:020}.json")
        _sync(self.local / _LOG)

    def sync_checkpoint(self) -> None:
        """I/O: the newest checkpoint is on the disk."""
        if self.local is None:
            return
        log = self.local / _LOG
        for file in (*sorted(log.glob("*.checkpoint*.parquet"))[-1:], log / "_last_checkpoint"):
            _sync(file)
        _sync(log)

    def mend(self) -> None:
        """I/O: puts aside what a power cut left half written at the end of the log: a commit or a
        checkpoint that nobody was told of. Every writer puts whole files in place, so while the machine runs nothing
        half written stands there."""
        if self.local is None or not (log := self.local / _LOG).is_dir():
            return
        for checkpoint in sorted(log.glob("*.checkpoint*.parquet"))[-1:]:
            if not _ends_with(checkpoint, _PARQUET_ENDS):
                (log / "_last_checkpoint").unlink(missing_ok=True)
                checkpoint.rename(checkpoint.with_name(f".{checkpoint.name}.torn"))
        pointer = log / "_last_checkpoint"
        if pointer.exists() and not _is_json(pointer):
            pointer.unlink()
        for commit in sorted(log.glob("*.json"))[-1:]:
            if not _is_json(commit):
                commit.rename(commit.with_name(f".{commit.name}.torn"))
        _sync(log)


def _ends_with(file: Path, ending: bytes) -> bool:
    return file.read_bytes()[-len(ending) :] == ending


def _is_json(file: Path) -> bool:
    """Return True if the text has at least one line, and every line is JSON."""
    try:
        return bool([json.loads(line) for line in file.read_text("utf-8").split("\n") if line])
    except ValueError:
        return False


def _sync(path: Path) -> None:
    """The content of a file, or the names in a folder. One that is gone, because it was old, needs nothing."""
    try:
        opened = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
