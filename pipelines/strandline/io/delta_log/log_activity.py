"""Rows that a table got in each of the last minutes, read from the files of its log."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from strandline.io.delta_log.commits import LogFolder

MINUTES: Final = 30
MAX_COMMITS: Final = 2_000
"""Maximum number of commits that one call reads."""


@dataclass(frozen=True)
class Appended:
    """Rows that one commit added."""

    version: int
    at: float
    """Unix time."""
    rows: int


class AppendedRows:
    """Rows that a table got, commit by commit. A call reads only the commits since the last call."""

    def __init__(self) -> None:
        self._commits: list[Appended] = []

    def per_minute(self, log: LogFolder, now: float) -> list[int]:
        """Return the rows of each of the last minutes, oldest first. I/O: reads files of the log.

        Args:
            now: Unix time.
        """
        last = self._commits[-1].version if self._commits else -1
        if (newest := log.newest()) < last:  # the table was created again
            last, self._commits = -1, []
        added = self._newer(log, newest, last, now - 60 * MINUTES)
        self._commits = [commit for commit in [*self._commits, *added] if commit.at > now - 60 * MINUTES]
        return per_minute(self._commits, now)

    def _newer(self, log: LogFolder, newest: int, last: int, since: float) -> list[Appended]:
        """Return the commits after version *last* that are not older than *since*, oldest first."""
        appends: list[Appended] = []
        for version in range(newest, max(last, newest - MAX_COMMITS), -1):
            commit = appended_by(version, log.actions(version) or ())
            if commit is None or commit.at < since:
                break
            appends.append(commit)
        return appends[::-1]


def per_minute(commits: Iterable[Appended], now: float) -> list[int]:
    """Return the rows of each of the last minutes, oldest first. Pure.

    Args:
        now: Unix time.
    """
    counted = Counter[int]()
    for commit in commits:
        counted[int((now - commit.at) // 60)] += commit.rows
    return [counted[age] for age in range(MINUTES - 1, -1, -1)]


def appended_by(version: int, actions: Iterable[dict[str, Any]]) -> Appended | None:
    """Return the rows that a commit added. None: it stores no time. Pure.

    A commit that only writes rows anew, such as OPTIMIZE, added none.
    """
    at, rows = None, 0
    for action in actions:
        if "commitInfo" in action:
            at = action["commitInfo"].get("timestamp")
        if (add := action.get("add")) and add.get("dataChange"):
            rows += json.loads(add.get("stats") or "{}").get("numRecords", 0)
    return None if at is None else Appended(version, at / 1000, rows)
