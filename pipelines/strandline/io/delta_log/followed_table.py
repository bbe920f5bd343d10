"""Append to a Delta table through delta-rs. No Spark.

The library commits by a conditional create (in a folder a hard link), so it never overwrites another writer's commit.
It syncs nothing to the disk, so this module does: a data file before the commit that names it, a commit before it is
reported.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from strandline.errors import ConfigurationError, FencedError, LakeUnavailable, one_line
from strandline.io.delta_log.append_result import AlreadyAppended, Appended, WriterEnded
from strandline.io.delta_log.commits import Commit, LogFolder
from strandline.io.delta_log.parquet_file import DataFile
from strandline.io.delta_log.plain_protocol import make_plain
from strandline.io.delta_log.table_folder import LOG, TableFolder, commit_name
from strandline.io.delta_log.table_upkeep import NO_HOOKS, TableUpkeep, checkpoint_interval
from strandline.io.telemetry.metrics import count_failures

_CONFLICTS, _FAILURES, _PAUSE_SECONDS = 100, 2, 0.2


def unwritable_table(folder: TableFolder, error: Exception) -> LakeUnavailable:
    """Return the error for a table whose folder cannot be read or written."""
    why = error.message if isinstance(error, LakeUnavailable) else one_line(error)
    return LakeUnavailable(
        f"{folder.uri} cannot be written ({why}); nothing is lost",
        next_step="check the disk or the store, and its permissions, then strandline capture",
    )


@dataclass(frozen=True)
class _Transaction:
    """Newest transaction of an application in the commits that were read."""

    sequence: int
    proof: str | None
    rows: int
    version: int
    """Version of its commit."""


@dataclass
class FollowedTable:
    """A table that this process appends to. It reads every commit, its own and those of others, in order. Thread-safe.

    The library refuses a forked process.

    Args:
        folder: Folder of the table.
        id: Id of the table that was opened.
        version: Newest version that was read.
    """

    folder: TableFolder
    id: str
    version: int
    upkeep: TableUpkeep
    _handle: DeltaTable
    _newest_text: str | None
    """Text of the commit *version*. None: log clean-up had removed it."""
    _newest: dict[str, _Transaction] = field(default_factory=dict, init=False)
    _restored_at: int | None = field(default=None, init=False)
    _proof: str | None = field(default=None, init=False)
    """Proof of this writer's newest commit."""
    _proven: _Transaction | None = field(default=None, init=False)
    """The commit with this proof. None: it has not been read."""
    _unsynced: list[int] = field(default_factory=list, init=False)
    _handle_since: int = field(default=-1, init=False)
    """Checkpoint that existed when the handle was opened. A handle lists all commits since then at each look."""
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False)

    @staticmethod
    def open(folder: TableFolder) -> FollowedTable:
        """I/O: opens an existing table. Ends its liquid clustering; repairs its log after a power cut.

        Raises:
            ConfigurationError: The table has features that delta-rs does not write.
        """
        log = LogFolder(folder)
        folder.repair_log()
        handle = make_plain(folder)
        version, metadata = int(handle.version()), handle.metadata()
        upkeep = TableUpkeep(folder, checkpoint_interval(dict(metadata.configuration)))
        table = FollowedTable(folder, str(metadata.id), version, upkeep, handle, log.text(version))
        table._handle_since = log.checkpoint()
        return table

    @property
    def log(self) -> LogFolder:
        return LogFolder(self.folder)

    def append_once(
        self, files: Sequence[DataFile], *, app_id: str, sequence: int, proof: str
    ) -> Appended | AlreadyAppended:
        """I/O: one commit adds *files* as application transaction (*app_id*, *sequence*). It is on disk on return.

        Args:
            files: Written into the folder. Empty: the commit only takes the sequence.
            proof: Unique text. It is stored as the commit's ``userMetadata``.

        Raises:
            FencedError: Log clean-up has removed commits that this writer has not read.
            LakeUnavailable: The disk is full, or the folder cannot be read. Another writer finds out what was
                committed.
            WriterEnded: As `follow`.
        """
        if files:
            self.folder.sync("")  # the files' names
        conflicts, failures, failure = 0, 0, Exception()
        with self._lock:
            self._proof, self._proven = proof, None
            while (result := self._committed_append(app_id, sequence, proof)) is None:
                try:
                    self._commit(files, app_id, sequence, proof)
                    continue
                except CommitFailedError as error:  # another commit came first; or this one, if its answer was lost
                    conflicts, failure = conflicts + 1, error
                except (DeltaError, OSError) as error:
                    failures, failure = failures + 1, error
                    count_failures(1, retries=int(failures < _FAILURES))
                    time.sleep(_PAUSE_SECONDS * failures)
                if conflicts >= _CONFLICTS or failures >= _FAILURES:
                    raise unwritable_table(self.folder, failure) from failure
            self._sync_commits()
            self.upkeep.begin_if_due(self.version)
            return result

    def _committed_append(self, app_id: str, sequence: int, proof: str) -> Appended | AlreadyAppended | None:
        """Return what the table knows of a transaction. None: its sequence is free.

        A sequence may be known from a checkpoint only: a RESTORE took its commit back, and its log file is gone.
        """
        self.follow()
        seen = self._proven or self._newest.get(app_id)  # a rival may have taken the next sequence meanwhile
        if seen is None or seen.sequence < sequence:
            taken = self._handle.transaction_version(app_id)
            return None if taken is None or taken < sequence else AlreadyAppended()
        if seen.sequence != sequence or seen.proof != proof:
            return AlreadyAppended()
        return Appended(seen.rows, self._restored_at, version=seen.version)

    def _commit(self, files: Sequence[DataFile], app_id: str, sequence: int, proof: str) -> None:
        adds = [AddAction(file.name, file.size, {}, file.modified_ms, True, file.statistics) for file in files]
        metrics = {
            "numFiles": len(files),
            "numOutputRows": sum(file.rows for file in files),
            "numOutputBytes": sum(file.size for file in files),
        }
        properties = CommitProperties(
            custom_metadata={
                "userMetadata": proof,
                "isBlindAppend": True,
                "operationMetrics": {name: str(value) for name, value in metrics.items()},
            },
            app_transactions=[Transaction(app_id, sequence, time.time_ns() // 1_000_000)],
        )
        self._handle.create_write_transaction(
            adds,  # type: ignore[arg-type]  # why: the library's list is invariant
            "append",
            self._handle.schema(),
            [],
            commit_properties=properties,
            post_commithook_properties=NO_HOOKS,
        )

    def follow(self) -> None:
        """I/O: reads the commits since the last call.

        The folder may have been replaced, by another table or an older copy. So the newest known commit is read again.

        Raises:
            FencedError: Log clean-up has removed commits that this writer has not read.
            LakeUnavailable: The folder cannot be read.
            WriterEnded: The table was replaced, or got features that delta-rs does not write.
        """
        with self._lock:
            text = self._newest_text
            try:
                text = self.log.text(self.version)  # the whole table may be replaced, in any place
                self._handle_at_newest()
                version, identity = int(self._handle.version()), str(self._handle.metadata().id)
            except (DeltaError, OSError) as error:
                raise (self._replacement_error() if text is None else unwritable_table(self.folder, error)) from error
            if version < self.version or identity != self.id:
                raise self._replacement_error()
            if text != self._newest_text and (text is not None or version == self.version):
                raise self._replacement_error()
            try:
                for number in range(self.version + 1, version + 1):
                    self._read_commit(number)
            except (DeltaError, OSError) as error:
                raise unwritable_table(self.folder, error) from error

    def _handle_at_newest(self) -> None:
        """Bring the handle up to date before it is asked. A transaction that comes later is a conflict for a commit."""
        if self.upkeep.written > self._handle_since:
            self._handle_since, self._handle = self.upkeep.written, self.folder.table()
        else:
            self._handle.update_incremental()

    def _read_commit(self, version: int) -> None:
        if (text := self.log.text(version)) is None:
            raise FencedError(
                f"{self.folder.uri} has newer commits whose log is gone; this writer stops, nothing is lost",
                next_step="strandline capture: it goes on from where the table is",
            )
        actions: list[dict[str, Any]] = [json.loads(line) for line in text.split("\n") if line]
        if any("protocol" in action for action in actions):
            self._make_plain()
        commit = Commit.of_actions(version, actions)
        if commit.operation == "RESTORE":
            self._restored_at = version
        is_own = self._proof is not None and commit.user_metadata == self._proof
        for action in actions:
            if (taken := action.get("txn")) is not None:
                rows = int(commit.metrics.get("numOutputRows", 0))
                transaction = _Transaction(taken["version"], commit.user_metadata, rows, version)
                self._newest[taken["appId"]] = transaction
                self._proven = transaction if is_own else self._proven
        self.version, self._newest_text = version, text
        self._unsynced.append(version)

    def _make_plain(self) -> None:
        """Lower the protocol that another process has changed. Raises WriterEnded if delta-rs cannot write it."""
        try:
            make_plain(self.folder)
        except ConfigurationError as error:
            raise WriterEnded(
                f"{error.message}: another process gave it these; nothing is lost", next_step="strandline capture"
            ) from error

    def _sync_commits(self) -> None:
        """Sync the commits since the last call, others' too: without an earlier one the log would end before it."""
        self.folder.sync(*map(commit_name, self._unsynced), LOG)
        self._unsynced.clear()

    def _replacement_error(self) -> WriterEnded:
        return WriterEnded(
            f"{self.folder.uri} was replaced under this writer; nothing is lost",
            next_step="strandline capture: it reads again what is missing",
        )

    def close(self) -> None:
        """I/O: waits for upkeep that has begun."""
        self.upkeep.close()
