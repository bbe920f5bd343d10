"""Tables of a lake for a process that looks at them again and again: nothing is read twice from one version."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final

import pyarrow.compute as pc
from deltalake import DeltaTable

from strandline.io.delta_log.commits import LogFolder
from strandline.io.delta_log.delta_rs_query import arrow_table
from strandline.io.delta_log.log_activity import AppendedRows
from strandline.io.delta_log.table_folder import commit_name
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.io.tables.kept_answers import KeptAnswers, State, TableSize
from strandline.model.query import Query
from strandline.model.tables import TableName

_FRESH_SECONDS: Final = 1.0


@dataclass(frozen=True)
class CachedTables(DeltaRsTables):
    """`DeltaRsTables` that keeps each opened table and each answer until the table has a new version.

    Only for reads.
    """

    @cached_property
    def _kept(self) -> KeptAnswers:
        return KeptAnswers(self._state, fresh_seconds=_FRESH_SECONDS)

    @cached_property
    def _appended(self) -> dict[TableName, AppendedRows]:
        return {}

    def query(self, query: Query) -> list[dict[str, Any]]:
        return self._kept.query(query, lambda: super(CachedTables, self).query(query))

    def size(self, table: TableName) -> TableSize:
        """Return the size of *table*. I/O: reads its log."""
        return self._kept.get(table, "size", lambda: self._measured(table))

    def added_per_minute(self, table: TableName) -> list[int]:
        """Return the rows that *table* got in each of the last minutes, oldest first. I/O: reads new files of its log.

        No rows: there is no such table.
        """
        log = LogFolder(self.folder(table))
        return self._appended.setdefault(table, AppendedRows()).per_minute(log, time.time())

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
        if version is not None:
            return super()._opened(table, version)
        return self._kept.get(table, "opened", lambda: super(CachedTables, self)._opened(table))

    def _state(self, table: TableName, known: int) -> State | None:
        """Return the newest version of *table*. None: its log does not tell. The call itself says what is wrong."""
        folder = self.folder(table)
        try:
            newest = folder.newest(known) if known >= 0 else -1
            newest = LogFolder(folder).newest() if newest < 0 else newest
            commit = None if newest < 0 else folder.read(commit_name(newest))
        except OSError:
            return None
        return None if commit is None else State(newest, hash(commit))


def _time_of(actions: list[dict[str, Any]] | None) -> datetime | None:
    """Return the time that a commit stores. None: it stores none."""
    infos = (action["commitInfo"] for action in actions or () if "commitInfo" in action)
    milliseconds = next((info.get("timestamp") for info in infos), None)
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
