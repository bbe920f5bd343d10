"""Progress of a silver table: all rows of bronze up to one version, and the mark of what that version held.

A version number alone tells nothing about rows. Bronze's folder may be put back from an older copy, and a commit may be
lost. Bronze then gets the same numbers again, for other rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from strandline.io.delta_log.commits import mark_of_rows
from strandline.io.tables.table_store import TableStore
from strandline.model.tables import TableName

_PROPERTY: Final = "strandline.bronze_progress"


@dataclass(frozen=True)
class Progress:
    """A version of bronze up to which a silver table is complete."""

    bronze_id: str
    version: int
    mark: str | None
    """Output of `mark_of_rows` for that version. None: unknown."""

    @staticmethod
    def stored_in(properties: Mapping[str, str]) -> Progress | None:
        """Return the progress stored in a table's properties. None: no run yet."""
        content = json.loads(properties[_PROPERTY]) if _PROPERTY in properties else None
        return Progress(content["bronze"], content["version"], content.get("mark")) if content else None

    @property
    def properties(self) -> dict[str, str]:
        """Table properties that store this progress."""
        return {_PROPERTY: json.dumps({"bronze": self.bronze_id, "version": self.version, "mark": self.mark})}


@dataclass(frozen=True)
class BronzeLog:
    """The log of a bronze table. It tells whether bronze still holds what a progress names."""

    tables: TableStore
    table: TableName
    id: str
    _marks: dict[int, str | None] = field(default_factory=dict, repr=False, compare=False)

    @staticmethod
    def of(tables: TableStore, table: TableName) -> BronzeLog:
        """I/O: reads the id of an existing table."""
        return BronzeLog(tables, table, tables.id(table))

    def newest(self) -> Progress:
        """Return the progress of a table that holds all of bronze. I/O: reads the newest commits."""
        commits = self.tables.commits_after(self.table, -1)
        if (commit := next(commits, None)) is None:
            return self.at(self.tables.version(self.table))
        self._marks[commit.version] = mark_of_rows(chain((commit,), commits))
        return self.at(commit.version)

    def at(self, version: int) -> Progress:
        """Return the progress of a table that holds bronze up to *version*. I/O: reads its commits, once."""
        if version not in self._marks:
            commits = self.tables.commits_after(self.table, -1, through=version)
            self._marks[version] = mark_of_rows(commits)
        return Progress(self.id, version, self._marks[version])

    def tells(self, progress: Progress) -> bool:
        """Return True if the log names another bronze table, or still has the commit of *progress*. I/O: reads it."""
        at = progress.version
        commit = next(self.tables.commits_after(self.table, at - 1, through=at), None)
        return progress.bronze_id != self.id or (commit is not None and commit.version == at)

    def holds(self, progress: Progress) -> bool:
        """Return True if bronze has, up to the version of *progress*, the rows that it had then. I/O: as `at`.

        False also if the log no longer tells: a caller then reads all of bronze.
        """
        return progress.mark is not None and progress == self.at(progress.version)
