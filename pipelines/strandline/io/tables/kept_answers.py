"""Answers about tables that are kept until the table has a new version, for a process that asks again and again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from strandline.model.query import Query
from strandline.model.tables import TableName

Rows = list[dict[str, Any]]
T = TypeVar("T")


@dataclass(frozen=True)
class State:
    """Version of a table, and a mark that differs if the table was created again."""

    version: int
    mark: int


@dataclass(frozen=True)
class TableSize:
    """Size of a table, read from its log. No data file is opened."""

    rows: int
    """Rows in the data files, without rows that deletion vectors mark."""
    files: int
    bytes: int
    version: int
    checkpoint: int | None
    """Version of the newest checkpoint. -1: none. None: not known."""
    changed_at: datetime | None
    """Time of the newest commit, UTC. None: the commit does not say."""


@dataclass
class Kept:
    """The newest version of one table that was seen, and the answers that were read from it."""

    state: State
    checked_at: float
    answers: dict[Any, Any] = field(default_factory=dict)


class KeptAnswers:
    """Answers of the newest versions of tables. Those of older versions are dropped, which bounds the memory.

    Args:
        ask: Returns the newest state of a table, given the version that was known before (-1: none). None: nobody can
            tell, so nothing is kept.
        fresh_seconds: Time for which the newest version of a table is not asked for again.
    """

    def __init__(self, ask: Callable[[TableName, int], State | None], *, fresh_seconds: float) -> None:
        self._ask, self._fresh_seconds = ask, fresh_seconds
        self._kept: dict[TableName, Kept] = {}

    def newest(self, table: TableName) -> Kept | None:
        """Return what is kept of the newest version of *table*. None: nothing can be kept. I/O: as *ask*."""
        kept = self._kept.get(table)
        if kept is not None and time.monotonic() - kept.checked_at < self._fresh_seconds:
            return kept
        state = self._ask(table, -1 if kept is None else kept.state.version)
        if state is None:
            return None
        if kept is None or kept.state != state:
            kept = self._kept[table] = Kept(state, time.monotonic())
        kept.checked_at = time.monotonic()
        return kept

    def get(self, table: TableName, what: str, read: Callable[[], T]) -> T:
        """Return the answer to *what*. I/O: as *ask* and, for a new version, as *read*."""
        kept = self.newest(table)
        if kept is None:
            return read()
        if what not in kept.answers:
            kept.answers[what] = read()
        answer: T = kept.answers[what]
        return answer

    def query(self, query: Query, read: Callable[[], Rows]) -> Rows:
        """Return the rows of *query*. I/O: as `get`."""
        kept = self.newest(query.table) if query.version is None else None
        try:
            answer = None if kept is None else kept.answers.get(query)
        except TypeError:  # a condition with a set, which has no hash
            kept = answer = None
        if answer is None:
            answer = read()
            if kept is not None:
                kept.answers[query] = answer
        return [dict(row) for row in answer]
