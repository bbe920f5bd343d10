"""Append to a Delta table in a folder of this machine, without a JVM: first data files, then one new file of the log.

This module implements only the part of the protocol that an append needs. An append removes no rows, so it conflicts
with no other commit.

Source: delta-io/delta, PROTOCOL.md: actions, requirements for writers, per-file statistics.
"""

from __future__ import annotations

import errno
import json
import os
import time
import uuid
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from pipelines import __version__
from pipelines.errors import ConfigurationError, FencedError
from pipelines.io.append_result import AlreadyAppended, Appended, WriterEnded
from pipelines.io.commits import Commit, LogFolder
from pipelines.io.parquet_file import DataFile

_KNOWN_FEATURES: Final = frozenset({"appendOnly", "invariants", "changeDataFeed", "domainMetadata", "clustering"})
"""Writer features that need no work for an append, if no column has invariants."""

_OWN_WATCHED: Final = 16
"""Number of own commits to check again: a rival needs less time between its look and its rename."""


@dataclass
class DeltaLog:
    """The log of one table, read commit by commit.

    Args:
        folder: Absolute path of the table.
        version: Newest known version. Later commits are read before anything is added.
    """

    folder: Path
    version: int
    _newest: dict[str, tuple[int, Commit]] = field(default_factory=dict, init=False)
    """By application id, the newest transaction in the commits that were read: sequence and commit."""
    _restored_at: int | None = field(default=None, init=False)
    _inode: int | None = field(default=None, init=False)
    _own: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_OWN_WATCHED), init=False)
    """Versions and inodes of this writer's last commits."""

    def __post_init__(self) -> None:
        self._inode = self._inode_of(self.version)

    @property
    def log(self) -> LogFolder:
        return LogFolder(self.folder / "_delta_log")

    def append_once(
        self, files: Sequence[DataFile], *, app_id: str, sequence: int, proof: str
    ) -> Appended | AlreadyAppended:
        """I/O: one commit adds *files* as application transaction (*app_id*, *sequence*). It is on disk on return.

        Args:
            app_id: Application id. It has no higher sequence up to the known version.
            proof: Unique text. It is stored as the commit's ``userMetadata``.

        Raises:
            ConfigurationError: The table now needs writer features that this writer lacks.
            FencedError: Log clean-up has removed commits that this writer has not read.
            WriterEnded: As `check`.
        """
        sync(self.folder)  # the files' names
        actions = _actions(files, app_id, sequence, proof)
        while True:
            self.follow()
            taken, commit = self._newest.get(app_id, (-1, None))
            if commit is not None and taken >= sequence:
                if taken != sequence or commit.user_metadata != proof:
                    return AlreadyAppended()
                return Appended(int(commit.metrics["numOutputRows"]), self._restored_at)
            self._put(actions)

    def follow(self) -> None:
        """I/O: reads the commits since the last call. Raises as `append_once`."""
        self.check()
        while (inode := self._inode_of(self.version + 1)) is not None:
            actions = self.log.actions(self.version + 1) or []
            commit = Commit.of_actions(self.version + 1, actions)
            if commit.operation == "RESTORE":
                self._restored_at = commit.version
            for action in actions:
                if (transaction := action.get("txn")) is not None:
                    self._newest[transaction["appId"]] = (transaction["version"], commit)
                elif (protocol := action.get("protocol")) is not None:
                    require_known_features(protocol.get("writerFeatures") or (), self.folder)
            self.version, self._inode = commit.version, inode
        if self.log.checkpoint() > self.version and self._inode_of(self.version + 1) is None:
            raise FencedError(
                f"{self.folder.name} has newer commits whose log is gone; this writer stops, nothing is lost",
                next_step="strandline capture: it goes on from where the table is",
            )

    def check(self) -> None:
        """I/O: checks that the newest known commit and this writer's last commits are still the same files.

        Spark renames its log file into place. This may replace a commit that came between Spark's look and its rename.
        The folder may also be replaced.

        Raises:
            WriterEnded: A commit was replaced.
        """
        if self._inode_of(self.version) != self._inode:
            raise self._replaced(self.version)
        for version, inode in self._own:
            if self._inode_of(version) not in (inode, None):  # None: Delta has removed what is old
                raise self._replaced(version)

    def _replaced(self, version: int) -> WriterEnded:
        return WriterEnded(
            f"commit {version} of {self.folder.name} was replaced under this writer; nothing is lost",
            next_step="strandline capture: it reads again what is missing",
        )

    def _inode_of(self, version: int) -> int | None:
        try:
            return self.log.file(version).stat().st_ino
        except FileNotFoundError:
            return None

    def _put(self, actions: str) -> None:
        """Write the file of the next version, unless it exists. A hard link, unlike a rename, replaces no file."""
        version = self.version + 1
        prepared = self.log.path / f".{version:020}.{uuid.uuid4()}.tmp"
        try:
            with prepared.open("x", encoding="utf-8") as file:
                file.write(actions)
                file.flush()
                os.fsync(file.fileno())
            os.link(prepared, self.log.file(version))
            self._own.append((version, prepared.stat().st_ino))
        except FileExistsError:
            return
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            raise ConfigurationError(
                f"the file system of {self.folder} has no hard links, by which the native engine commits",
                next_step="set capture.engine: spark",
            ) from None
        finally:
            prepared.unlink(missing_ok=True)
        sync(self.log.path)


def require_known_features(features: Collection[str], table: Path) -> None:
    """Raise ConfigurationError if a table needs writer features that this writer lacks."""
    unknown = sorted(set(features) - _KNOWN_FEATURES)
    if unknown:
        raise ConfigurationError(
            f"{table} has features that the native engine does not write ({', '.join(unknown)})",
            next_step="set capture.engine: spark",
        )


def _actions(files: Sequence[DataFile], app_id: str, sequence: int, proof: str) -> str:
    """One action a line."""
    now = time.time_ns() // 1_000_000
    metrics = {
        "numFiles": len(files),
        "numOutputRows": sum(file.rows for file in files),
        "numOutputBytes": sum(file.size for file in files),
    }
    info = {
        "timestamp": now,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": "[]"},
        "isBlindAppend": True,
        "operationMetrics": {name: str(value) for name, value in metrics.items()},
        "userMetadata": proof,
        "engineInfo": f"strandline/{__version__}",
        "txnId": str(uuid.uuid4()),
    }
    actions: list[dict[str, Any]] = [
        {"commitInfo": info},
        {"txn": {"appId": app_id, "version": sequence, "lastUpdated": now}},
        *({"add": _addition(file)} for file in files),
    ]
    return "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)


def _addition(file: DataFile) -> dict[str, Any]:
    return {
        "path": quote(file.name),
        "partitionValues": {},
        "size": file.size,
        "modificationTime": file.modified_ms,
        "dataChange": True,
        "stats": file.statistics,
    }


def sync(path: Path) -> None:
    """Sync a file or a folder. A file's name is on disk only after its folder is synced."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
