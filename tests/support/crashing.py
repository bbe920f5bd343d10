"""A lake whose process ends at a chosen commit."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from strandline.io.delta_log import sorted_rewrite
from strandline.io.delta_log.commits import LogFolder
from strandline.io.delta_log.followed_table import FollowedTable
from strandline.io.delta_log.mergeable_table import MergeableTable
from strandline.io.delta_log.rewrite_commit import commit_rewrite
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.io.tables.spark_tables import Tables
from strandline.jobs.context import JobContext
from strandline.model.merge_rule import Merged
from strandline.model.tables import TableName


class Crash(BaseException):  # no retry may catch it
    """The process ends here."""


@dataclass(frozen=True)
class Countdown:
    """Counts commits, and ends the run before or after one of them, as a power cut would.

    *countdown*: ``left``, the number of commits up to that one; ``after``, 1 if that commit still happens.
    *ended*: what that commit was. *of*: only commits to tables with this in their name are counted.
    """

    countdown: dict[str, int] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    of: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def commit(self, what: str, table: object, call: Callable[[], Any]) -> Any:
        if self.of not in str(table):
            return call()
        with self._lock:
            left = self.countdown["left"] = self.countdown.get("left", 10**9) - 1
        if left == 0:
            self.ended.append(f"{what} {table}")
        if left < 0 or (left == 0 and self.countdown["after"] == 0):
            raise Crash
        result = call()
        if left == 0:
            raise Crash
        return result

    def counts_native_commits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Commits that need no Spark count: the native engine's, those of silver's small batches, and rewrites."""
        append_once, create = FollowedTable.append_once, DeltaRsTables.create_table
        properties, insert = DeltaRsTables.set_properties, DeltaRsTables.insert_rows

        def append_counted(table: FollowedTable, *args: Any, **kwargs: Any) -> Any:
            return self.commit("commit natively to", table.folder.uri, partial(append_once, table, *args, **kwargs))

        def create_counted(tables: DeltaRsTables, table: TableName, *args: Any, **kwargs: Any) -> None:
            if not tables.exists(table):
                self.commit("create natively", table, partial(create, tables, table, *args, **kwargs))

        def properties_counted(tables: DeltaRsTables, table: TableName, *args: Any) -> None:
            self.commit("set natively properties of", table, partial(properties, tables, table, *args))

        def insert_counted(tables: DeltaRsTables, table: TableName, *args: Any, **kwargs: Any) -> int:
            inserted: int = self.commit("insert natively", table, partial(insert, tables, table, *args, **kwargs))
            return inserted

        merge = MergeableTable.merge

        def merge_counted(table: MergeableTable, *args: Any, **kwargs: Any) -> Merged:
            merged: Merged = self.commit(
                "merge a small batch into", table.folder.uri, partial(merge, table, *args, **kwargs)
            )
            return merged

        load, add_columns = MergeableTable.load, MergeableTable.add_columns

        def load_counted(table: MergeableTable, *args: Any) -> Merged | None:
            loaded: Merged | None = self.commit("load", table.folder.uri, partial(load, table, *args))
            return loaded

        def columns_counted(table: MergeableTable, *args: Any) -> bool:
            added: bool = self.commit("add columns to", table.folder.uri, partial(add_columns, table, *args))
            return added

        def rewrite_counted(log: LogFolder, *args: Any, **kwargs: Any) -> bool:
            rewritten: bool = self.commit("rewrite", log.folder.uri, partial(commit_rewrite, log, *args, **kwargs))
            return rewritten

        monkeypatch.setattr(sorted_rewrite, "commit_rewrite", rewrite_counted)
        monkeypatch.setattr(MergeableTable, "load", load_counted)
        monkeypatch.setattr(MergeableTable, "add_columns", columns_counted)
        monkeypatch.setattr(MergeableTable, "merge", merge_counted)
        monkeypatch.setattr(FollowedTable, "append_once", append_counted)
        monkeypatch.setattr(DeltaRsTables, "create_table", create_counted)
        monkeypatch.setattr(DeltaRsTables, "set_properties", properties_counted)
        monkeypatch.setattr(DeltaRsTables, "insert_rows", insert_counted)

    def until_it_ends(self, job: Callable[[], object], chance: random.Random, commits: int = 8) -> None:
        """Run *job*, crashing at random ones of its first *commits*, until one run gets through."""
        for attempt in range(4):
            self.countdown.update(left=chance.randint(1, commits) if attempt < 3 else 10**9, after=chance.randrange(2))
            try:
                job()
            except Crash:
                continue
            self.countdown.clear()  # native commits of what follows are counted, too
            return


@dataclass(frozen=True)
class CrashingTables(Countdown, Tables):
    """Real tables that count their commits."""

    def create(self, table: TableName, *args: Any, **kwargs: Any) -> None:
        if not self.exists(table):
            self.commit("create", table, partial(super().create, table, *args, **kwargs))

    def append(self, table: TableName, *args: Any, **kwargs: Any) -> None:
        self.commit("append to", table, partial(super().append, table, *args, **kwargs))

    def set_properties(self, table: TableName, *args: Any, **kwargs: Any) -> None:
        self.commit("set properties of", table, partial(super().set_properties, table, *args, **kwargs))

    def replace(self, table: TableName, *args: Any, **kwargs: Any) -> None:
        self.commit("replace", table, partial(super().replace, table, *args, **kwargs))

    def update(self, table: TableName, *args: Any, **kwargs: Any) -> int:
        updated: int = self.commit("update", table, partial(super().update, table, *args, **kwargs))
        return updated

    def delete(self, table: TableName, where: str) -> int:
        deleted: int = self.commit("delete from", table, partial(super().delete, table, where))
        return deleted

    def merge(self, table: TableName, *args: Any, **kwargs: Any) -> Merged:
        merged: Merged = self.commit("merge into", table, partial(super().merge, table, *args, **kwargs))
        return merged


def until_it_ends(
    job: Callable[[JobContext], object], crashing: JobContext, chance: random.Random, commits: int = 8
) -> None:
    """Run *job*, crashing at random ones of its first *commits*, until one run gets through.

    Args:
        crashing: Its tables are `CrashingTables`.
    """
    assert isinstance(crashing.tables, CrashingTables)
    crashing.tables.until_it_ends(lambda: job(crashing), chance, commits)
