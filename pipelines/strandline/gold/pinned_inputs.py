"""Table versions that one gold run reads.

They are looked up once, so all nodes read the same versions. Rows in quarantine are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from strandline.io.tables.table_store import TableStore
from strandline.model.quarantine import is_quarantine_of, quarantine_of
from strandline.model.tables import Lake, TableName

_T = TypeVar("_T", bound=TableStore)
_T_co = TypeVar("_T_co", bound=TableStore, covariant=True)

# Maximum commits to check one by one. Beyond it, the rows count as changed.
_MAX_COMMITS_READ = 1000


@dataclass(frozen=True)
class TableVersion:
    """One version of a table. *id* differs if a table is dropped and created again under the same name."""

    id: str
    version: int


@dataclass(frozen=True)
class PinnedInputs(Generic[_T_co]):
    """Versions of the input tables of one gold run, other than gold, and of their quarantine tables."""

    tables: _T_co
    versions: Mapping[TableName, TableVersion]
    quarantines: Mapping[TableName, TableName]
    """Quarantine table by silver table. Their versions are in *versions*."""

    @staticmethod
    def take(
        tables: _T, names: Iterable[TableName], versions: Mapping[TableName, int], *, max_threads: int = 1
    ) -> PinnedInputs[_T]:
        """Look up the version of each table in *names*.

        I/O: two short reads per table; writes nothing.

        Args:
            versions: Versions that the quality gate has checked. Other tables are read at their newest version.
        """
        # Gold tables are not pinned: they change during the run.
        inputs = [name for name in dict.fromkeys(names) if name.layer != "gold"]
        quarantines = [quarantine_of(name) for name in inputs if name.layer == "silver"]
        with ThreadPoolExecutor(max_threads, thread_name_prefix="strandline-cut") as pool:
            newest_versions = dict(
                zip(
                    [*inputs, *quarantines],
                    pool.map(lambda name: _newest_version(tables, name), [*inputs, *quarantines]),
                    strict=True,
                )
            )
        pinned = {
            name: TableVersion(newest.id, versions.get(name, newest.version))
            for name in [*inputs, *quarantines]
            if (newest := newest_versions[name]) is not None
        }
        return PinnedInputs(
            tables, pinned, quarantines_of(tables, [name for name in inputs if quarantine_of(name) in pinned])
        )

    def version_of(self, table: TableName) -> TableVersion | None:
        """Return the version to read; None if the table does not exist. A gold table is looked up now."""
        return _newest_version(self.tables, table) if table.layer == "gold" else self.versions.get(table)

    def sql(self, table: TableName) -> str:
        """Return the SQL that replaces *table* in a build query: its pinned version without quarantined rows."""
        if table not in self.versions:
            return self.tables.lake.sql(table)
        pinned = f"{self.tables.lake.sql(table)} VERSION AS OF {self.versions[table].version}"
        quarantine = self.quarantines.get(table)
        return _anti_join(pinned, self.sql(quarantine)) if quarantine is not None else pinned


def quarantines_of(tables: TableStore, names: Iterable[TableName]) -> dict[TableName, TableName]:
    """Return the quarantine table of each silver table in *names* that has one.

    I/O: reads table properties; writes nothing.
    """
    candidates = {name: quarantine_of(name) for name in names if name.layer == "silver"}
    return {
        name: quarantine
        for name, quarantine in candidates.items()
        if tables.exists(quarantine) and is_quarantine_of(name, tables.properties(quarantine))
    }


def without_quarantined(lake: Lake, quarantines: Mapping[TableName, TableName]) -> Callable[[TableName], str]:
    """Return a source of tables at their newest version, without the rows in quarantine."""

    def source(table: TableName) -> str:
        return _anti_join(lake.sql(table), lake.sql(quarantines[table])) if table in quarantines else lake.sql(table)

    return source


def _anti_join(table: str, quarantine: str) -> str:
    return f"(SELECT t.* FROM {table} AS t LEFT ANTI JOIN {quarantine} AS q ON t._key <=> q._key)"


def rows_changed(tables: TableStore, table: TableName, after: int, through: int) -> bool:
    """Return True if a commit of *table* after version *after*, up to and including *through*, may have changed rows.

    I/O: reads the history of these commits only; writes nothing.
    """
    if tables.version(table) - after > _MAX_COMMITS_READ:
        return True
    commits = tables.commits_between(table, after, through)
    return commits is None or not all(commit.keeps_rows for commit in commits)


def _newest_version(tables: TableStore, table: TableName) -> TableVersion | None:
    return TableVersion(tables.id(table), tables.version(table)) if tables.exists(table) else None
