"""Tables of a lake for a process that looks at them again and again: nothing is read twice from one version."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow.compute as pc
from deltalake import DeltaTable

from pipelines.io.commits import LogFolder
from pipelines.io.delta_rs_query import arrow_table
from pipelines.io.delta_rs_tables import DeltaRsTables
from pipelines.io.table_folder import commit_name
from pipelines.model.query import Query
from pipelines.model.tables import TableName

_FRESH_SECONDS: Final = 1.0
"""Time for which the newest version of a table is not asked for again."""
_State = tuple[int, int]
"""Newest version and a hash of its commit, which differs if the table was created again."""


@dataclass(frozen=True)
class TableSize:
    """Size of a table, read from its log. No data file is opened."""

    rows: int
    """Rows in the data files, without rows that deletion vectors mark."""
    files: int
    bytes: int
    version: int
    checkpoint: int
    """Version of the newest checkpoint. -1: none."""
    changed_at: datetime | None
    """Time of the newest commit, UTC. None: the commit does not say."""


@dataclass
class _Kept:
    """The newest version of one table that was seen, and the answers that were read from it."""

    state: _State
    checked_at: float
    opened: DeltaTable | None = None
    answers: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CachedTables(DeltaRsTables):
    """`DeltaRsTables` that keeps each opened table and each answer until the table has a new version.

    Only for reads. The answers of an old version are dropped, so memory is bounded by the newest versions.
    """

    _kept: dict[TableName, _Kept] = field(default_factory=dict, init=False, repr=False, compare=False)

    def query(self, query: Query) -> list[dict[str, Any]]:
        kept = self._newest(query.table) if query.version is None else None
        try:
            found = None if kept is None else kept.answers.get(query)
        except TypeError:  # a condition with a set, which has no hash
            kept = found = None
        if found is None:
            found = super().query(query)
            if kept is not None:
                kept.answers[query] = found
        return [dict(row) for row in found]

    def size(self, table: TableName) -> TableSize:
        """Return the size of *table*. I/O: reads its log."""
        kept = self._newest(table)
        if kept is None or "size" not in kept.answers:
            size = self._measured(table)
            if kept is None:
                return size
            kept.answers["size"] = size
        found: TableSize = kept.answers["size"]
        return found

    def _measured(self, table: TableName) -> TableSize:
        opened, log = self._opened(table), LogFolder(self.folder(table))
        files = arrow_table(opened.get_add_actions(flatten=True))
        rows = pc.sum(files["num_records"]).as_py() or 0
        marked = "deletion_vector.cardinality"
        rows -= (pc.sum(files[marked]).as_py() or 0) if marked in files.schema.names else 0
        version = int(opened.version())
        return TableSize(
            rows=int(rows),
            files=files.num_rows,
            bytes=int(pc.sum(files["size_bytes"]).as_py() or 0),
            version=version,
            checkpoint=log.checkpoint(),
            changed_at=_time_of(log.actions(version, naming='"commitInfo"')),
        )

    def _opened(self, table: TableName, version: int | None = None) -> DeltaTable:
        kept = self._newest(table) if version is None else None
        if kept is None:
            return super()._opened(table, version)
        if kept.opened is None:
            kept.opened = super()._opened(table, None)
        return kept.opened

    def _newest(self, table: TableName) -> _Kept | None:
        """Return what is kept of the newest version of *table*. None: its log does not tell, so nothing is kept."""
        kept = self._kept.get(table)
        if kept is not None and time.monotonic() - kept.checked_at < _FRESH_SECONDS:
            return kept
        try:
            state = self._state(table, -1 if kept is None else kept.state[0])
        except OSError:
            return None  # the call itself says what is wrong
        if state is None:
            return None
        if kept is None or kept.state != state:
            kept = _Kept(state, time.monotonic())
            self._kept[table] = kept
        kept.checked_at = time.monotonic()
        return kept

    def _state(self, table: TableName, known: int) -> _State | None:
        folder = self.folder(table)
        newest = folder.newest(known) if known >= 0 else -1
        newest = LogFolder(folder).newest() if newest < 0 else newest
        commit = None if newest < 0 else folder.read(commit_name(newest))
        return None if commit is None else (newest, hash(commit))


def _time_of(actions: list[dict[str, Any]] | None) -> datetime | None:
    """Return the time that a commit stores. None: it stores none."""
    infos = (action["commitInfo"] for action in actions or () if "commitInfo" in action)
    milliseconds = next((info.get("timestamp") for info in infos), None)
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
