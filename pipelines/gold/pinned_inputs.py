"""The versions that one run of gold reads: looked up once, so that every node sees the same tables, without the rows in quarantine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pipelines.io.commits import Commit
from pipelines.io.tables import Tables
from pipelines.model.quarantine import is_quarantine_of, quarantine_of
from pipelines.model.tables import Lake, TableName

# A reader that has fallen behind by more commits than these does not look through them one by one.
_MOST_COMMITS = 1000
_QUIET = ("SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "OPTIMIZE", "VACUUM START", "VACUUM END")
_ROWS = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")


@dataclass(frozen=True)
class PinnedTable:
    """One table at one version; *id* tells it from a table that was made anew under its name."""

    id: str
    version: int


@dataclass(frozen=True)
class PinnedInputs:
    """Snapshots of all tables below gold that a run reads, and of their quarantines."""

    tables: Tables
    snapshots: Mapping[TableName, PinnedTable]
    quarantines: Mapping[TableName, TableName]
    """By silver table. They are among the snapshots."""

    @staticmethod
    def take(
        tables: Tables, names: Iterable[TableName], versions: Mapping[TableName, int], *, max_threads: int = 1
    ) -> PinnedInputs:
        """I/O: two short reads for each of *names*.

        Args:
            versions: Tables to be read at these versions: those that a quality gate has checked. Others: the newest.
        """
        wanted = [
            name for name in dict.fromkeys(names) if name.layer != "gold"
        ]  # gold's own change while the run goes on
        beside = [quarantine_of(name) for name in wanted if name.layer == "silver"]
        with ThreadPoolExecutor(max_threads, thread_name_prefix="strandline-cut") as pool:
            found = dict(
                zip([*wanted, *beside], pool.map(lambda name: _look(tables, name), [*wanted, *beside]), strict=True)
            )
        snapshots = {
            name: PinnedTable(seen.id, versions.get(name, seen.version))
            for name in [*wanted, *beside]
            if (seen := found[name]) is not None
        }
        return PinnedInputs(
            tables, snapshots, quarantines_of(tables, [name for name in wanted if quarantine_of(name) in snapshots])
        )

    def snapshot(self, table: TableName) -> PinnedTable | None:
        """None: it is not there. A table of gold is looked at now."""
        return _look(self.tables, table) if table.layer == "gold" else self.snapshots.get(table)

    def sql(self, table: TableName) -> str:
        """What stands for *table* in a query that builds rows: its version, less the rows in quarantine."""
        if table not in self.snapshots:
            return self.tables.lake.sql(table)
        pinned = f"{self.tables.lake.sql(table)} VERSION AS OF {self.snapshots[table].version}"
        quarantine = self.quarantines.get(table)
        return _less(pinned, self.sql(quarantine)) if quarantine is not None else pinned


def quarantines_of(tables: Tables, names: Iterable[TableName]) -> dict[TableName, TableName]:
    """I/O: the quarantine of each silver table among *names* that has one."""
    beside = {name: quarantine_of(name) for name in names if name.layer == "silver"}
    return {
        name: held
        for name, held in beside.items()
        if tables.exists(held) and is_quarantine_of(name, tables.properties(held))
    }


def visible(lake: Lake, quarantines: Mapping[TableName, TableName]) -> Callable[[TableName], str]:
    """Tables as they are now, less the rows in quarantine, by name."""

    def source(table: TableName) -> str:
        return _less(lake.sql(table), lake.sql(quarantines[table])) if table in quarantines else lake.sql(table)

    return source


def _less(table: str, quarantine: str) -> str:
    return f"(SELECT t.* FROM {table} AS t LEFT ANTI JOIN {quarantine} AS q ON t._key <=> q._key)"


def rows_changed(tables: Tables, table: TableName, after: int, through: int) -> bool:
    """I/O: whether a commit of *table* in (after, through] may have changed rows; reads the history of those commits only."""
    if tables.version(table) - after > _MOST_COMMITS:
        return True
    commits = tables.commits_between(table, after, through)
    return commits is None or not all(_is_quiet(commit) for commit in commits)


def _is_quiet(commit: Commit) -> bool:
    merged_nothing = commit.operation == "MERGE" and all(commit.metrics.get(name) == "0" for name in _ROWS)
    return commit.operation in _QUIET or merged_nothing


def _look(tables: Tables, table: TableName) -> PinnedTable | None:
    return PinnedTable(tables.id(table), tables.version(table)) if tables.exists(table) else None
