"""Appends to a Delta table by path, in a folder or an object store, through delta-rs: no JVM, one commit each.

The library commits by a conditional create (in a folder a hard link), so it takes no other writer's place. It syncs
nothing to the disk: what a power cut needs stands in `files`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Lock, Thread
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from bench.delta_rs.files import PARTITION, StoredFile, TableFolder
from pipelines.errors import FencedError, RetriableError
from pipelines.io.append_result import AlreadyAppended, Appended, WriterEnded
from pipelines.io.commits import Commit

_INTERVAL: Final = "delta.checkpointInterval"
_DEFAULT_INTERVAL: Final = 100
_NOTHING_ELSE: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""A checkpoint is written beside the appends, and the log is cleaned only once that checkpoint is on the disk."""
_CONFLICTS, _FAILURES, _PAUSE_SECONDS = 100, 4, 0.2
_CLEAN_SECONDS: Final = 3600.0


@dataclass(frozen=True)
class _Transaction:
    """The newest one of an application in the commits that were looked at."""

    sequence: int
    proof: str | None
    rows: int


@dataclass
class DeltaRsTable:
    """One table, followed commit by commit; for several threads of one process. The library refuses a forked process.

    Args:
        id: Of the table that was opened.
        followed: The newest version that was looked at.
    """

    folder: TableFolder
    id: str
    followed: int
    _handle: DeltaTable
    _newest_text: str
    _lock: Lock = field(default_factory=Lock, init=False)
    _newest: dict[str, _Transaction] = field(default_factory=dict, init=False)
    _restored_at: int | None = field(default=None, init=False)
    _unsynced: list[int] = field(default_factory=list, init=False)
    _checkpoint: Thread | None = field(default=None, init=False)
    _checkpointed: int = field(default=-1, init=False)
    _stale: bool = field(default=False, init=False)
    """There is a newer checkpoint than the handle knows. It lists every commit since its own again each time."""
    _cleaned_at: float = field(default_factory=time.monotonic, init=False)

    @staticmethod
    def open(uri: str, options: Mapping[str, str] | None = None) -> DeltaRsTable:
        """I/O: a table that is there. Raises TableNotFoundError where there is none."""
        folder = TableFolder(uri, dict(options or {}))
        folder.mend()
        handle = DeltaTable(uri, storage_options=dict(folder.options))
        version = int(handle.version())
        opened = DeltaRsTable(folder, str(handle.metadata().id), version, handle, folder.commit_text(version) or "")
        opened._checkpointed = version
        return opened

    @staticmethod
    def create(
        uri: str,
        schema: pa.Schema,
        properties: Mapping[str, str],
        *,
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
    ) -> DeltaRsTable:
        """I/O: creates the table, partitioned by day, if it is not there; one of several rivals does. Idempotent.

        Args:
            schema: With the column ``captured_on`` (DATE).
        """
        try:
            return DeltaRsTable.open(uri, options)
        except TableNotFoundError:
            pass
        try:
            DeltaTable.create(
                uri,
                schema,
                partition_by=[PARTITION],
                description=comment,
                configuration=dict(properties),
                storage_options=dict(options or {}),
                post_commithook_properties=_NOTHING_ELSE,
                raise_if_key_not_exists=False,
            )
        except DeltaError:
            if not DeltaTable.is_deltatable(uri, dict(options or {})):  # nor did a rival create it
                raise
        TableFolder(uri, dict(options or {})).sync_created()
        return DeltaRsTable.open(uri, options)

    @property
    def handle(self) -> DeltaTable:
        """For reads, as of about `followed`."""
        return self._handle

    @property
    def properties(self) -> dict[str, str]:
        """As of `followed`."""
        return dict(self._handle.metadata().configuration)

    def append_once(
        self, files: Sequence[StoredFile], *, app_id: str, sequence: int, proof: str
    ) -> Appended | AlreadyAppended:
        """I/O: one commit that adds *files* as transaction (*app_id*, *sequence*), durable when this returns.

        Args:
            files: Written by `TableFolder.write`; none: the transaction alone is taken.
            proof: Text that no other commit carries; stored as the commit's ``userMetadata``.

        Raises:
            FencedError: So much was committed since the last look that its log is gone.
            RetriableError: The store does not answer, or the disk is full. The next call tells whether it landed.
            WriterEnded: The table is not the one that was opened.
        """
        with self._lock:
            look = partial(self._landed, app_id, sequence, proof)
            self._until(lambda: look() is not None, partial(self._commit, files, app_id, sequence, proof))
            landed = look()
            assert landed is not None  # it was just seen
            self.folder.sync_commits(self._unsynced)
            self._unsynced.clear()
            self._checkpoint_beside()
            return landed

    def _until(self, done: Callable[[], bool], commit: Callable[[], None]) -> None:
        """I/O: commits until *done* says so. Whether one landed is asked of the log, never of
        the answer, which may be lost."""
        conflicts, failures, failed = 0, 0, Exception()
        while True:
            self._follow()
            if done():
                return
            try:
                commit()
            except CommitFailedError as error:  # somebody was faster; or a lost answer, which looks the same
                conflicts, failed = conflicts + 1, error
            except (DeltaError, OSError) as error:
                failures, failed = failures + 1, error
                time.sleep(_PAUSE_SECONDS * failures)
            if conflicts >= _CONFLICTS or failures >= _FAILURES:
                raise RetriableError(f"{self.folder.uri}: no commit lands ({failed})") from failed

    def _landed(self, app_id: str, sequence: int, proof: str) -> Appended | AlreadyAppended | None:
        seen = self._newest.get(app_id)
        taken = self._handle.transaction_version(app_id)
        if seen is None or seen.sequence < sequence:
            return None if taken is None or taken < sequence else AlreadyAppended()
        if seen.sequence != sequence or seen.proof != proof:
            return AlreadyAppended()
        return Appended(seen.rows, self._restored_at, looked_up_to=self.followed)

    def _commit(self, files: Sequence[StoredFile], app_id: str, sequence: int, proof: str) -> None:
        adds = [
            AddAction(file.path, file.size, {PARTITION: file.day}, file.modified_ms, True, file.statistics)
            for file in files
        ]
        said = CommitProperties(
            custom_metadata={"userMetadata": proof, "isBlindAppend": True},
            app_transactions=[Transaction(app_id, sequence, time.time_ns() // 1_000_000)],
        )
        self._handle.create_write_transaction(
            adds,  # type: ignore[arg-type]  # why: the library's list is invariant
            "append",
            self._handle.schema(),
            [PARTITION],
            commit_properties=said,
            post_commithook_properties=_NOTHING_ELSE,
        )

    def follow(self) -> None:
        """I/O: looks at what was committed since. Raises FencedError and WriterEnded as `append_once`."""
        with self._lock:
            self._follow()

    def _follow(self) -> None:
        """Brings the handle up to date before it is asked: a transaction that comes after that look is a conflict for
        the commit."""
        stands = self.folder.commit_text(self.followed)
        try:
            if self._stale:
                self._stale, self._handle = False, self._reopened()
            self._handle.update_incremental()
        except DeltaError as error:
            if stands is None:
                raise self._replaced() from error
            raise RetriableError(f"{self.folder.uri} does not answer ({error})") from error
        newest = int(self._handle.version())
        if newest < self.followed or str(self._handle.metadata().id) != self.id:
            raise self._replaced()
        if stands != self._newest_text and (stands is not None or newest == self.followed):
            raise self._replaced()
        for version in range(self.followed + 1, newest + 1):
            self._look_at(version)

    def _look_at(self, version: int) -> None:
        text = self.folder.commit_text(version)
        if text is None:
            raise FencedError(
                f"{self.folder.uri} has moved on, and the log of what happened meanwhile is gone; this writer stops,"
                " nothing is lost",
                next_step="strandline capture: it goes on from where the table is",
            )
        actions = _actions(text)
        commit = Commit.of_actions(version, actions)
        if commit.operation == "RESTORE":
            self._restored_at = version
        for action in actions:
            if (taken := action.get("txn")) is not None:
                self._newest[taken["appId"]] = _Transaction(taken["version"], commit.user_metadata, _rows(actions))
        self.followed, self._newest_text = version, text
        self._unsynced.append(version)

    def _replaced(self) -> WriterEnded:
        return WriterEnded(
            f"{self.folder.uri} is not the table that this writer opened: it was moved, removed or replaced;"
            " nothing is lost",
            next_step="strandline capture: it reads again what is missing",
        )

    def _reopened(self) -> DeltaTable:
        return DeltaTable(self.folder.uri, storage_options=dict(self.folder.options))

    def _checkpoint_beside(self) -> None:
        """Starts one where the interval has passed, in a thread with a handle of its own; appends go on."""
        interval = int(self.properties.get(_INTERVAL, _DEFAULT_INTERVAL))
        if self.followed - self._checkpointed < interval or (self._checkpoint and self._checkpoint.is_alive()):
            return
        self._checkpointed = self.followed
        self._checkpoint = Thread(target=self._write_checkpoint, name="strandline-checkpoint", daemon=True)
        self._checkpoint.start()

    def _write_checkpoint(self) -> None:
        handle = self._reopened()
        handle.create_checkpoint()
        self.folder.sync_checkpoint()
        if time.monotonic() - self._cleaned_at > _CLEAN_SECONDS:
            handle.cleanup_metadata()
            self._cleaned_at = time.monotonic()
        self._stale = True

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """I/O: one commit, or none where they stand there. Raises as `append_once`."""

        def done() -> bool:
            return properties.items() <= self.properties.items()

        def commit() -> None:
            self._handle.alter.set_table_properties(
                dict(properties), raise_if_not_exists=False, post_commithook_properties=_NOTHING_ELSE
            )

        with self._lock:
            self._until(done, commit)
            self.folder.sync_commits(self._unsynced)
            self._unsynced.clear()

    def commits_after(self, version: int) -> Iterator[Commit]:
        """I/O: those later than *version* up to `followed`, newest first, as far as the log goes back. Only as many
        are read as are taken."""
        for number in range(self.followed, version, -1):
            if (text := self.folder.commit_text(number)) is None:
                return
            yield Commit.of_actions(number, _actions(text))

    def close(self) -> None:
        """I/O: waits for a checkpoint that is being written."""
        if self._checkpoint is not None:
            self._checkpoint.join()


def _actions(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.split("\n") if line]


def _rows(actions: Sequence[Mapping[str, Any]]) -> int:
    """Rows that a commit added: delta-rs counts none in ``commitInfo``."""
    return sum(json.loads(action["add"]["stats"])["numRecords"] for action in actions if "add" in action)
