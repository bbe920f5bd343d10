"""Effect of a MERGE, stated once and written for two engines: Spark's SQL and DataFusion, delta-rs's engine. Pure.

    rule = MergeRule(("_key",)).update(["total", "_position"], when="s._position > t._position").insert(columns)

Conditions and values are SQL that both engines read: plain column names with ``s.`` or ``t.``, ``CASE``, ``coalesce``,
``cardinality``, comparisons. Names of columns are given as they are, and each engine quotes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from strandline.model.query import Dialect

Rows = Literal["matched", "new", "missing"]
"""Rows that a clause is about: rows of both sides, rows of the source alone, rows of the target alone."""


@dataclass(frozen=True)
class Clause:
    """One clause of a MERGE: an update, an insert or a delete of the rows that fit."""

    rows: Rows
    values: Mapping[str, str] | None
    """SQL by column. None: the rows are deleted."""
    when: str
    """Condition. Empty: always."""
    differing: tuple[str, ...] = ()
    """Columns: one of them is not the same in both rows. Empty: they may all be the same."""

    def condition(self, dialect: Dialect) -> str:
        """Return the whole condition, as SQL. Empty: always."""
        names = map(dialect.name, self.differing)
        differs = " OR ".join(f"(s.{name} IS DISTINCT FROM t.{name})" for name in names)
        return f"({self.when}) AND ({differs})" if self.when and differs else self.when or differs


@dataclass(frozen=True)
class MergeRule:
    """MERGE of source rows ``s`` into target rows ``t``. The first clause that fits a row applies.

    Args:
        keys: Columns that are equal in two rows that match. Null is equal to null.
        clauses: In their order.
    """

    keys: Sequence[str]
    clauses: tuple[Clause, ...] = ()

    def update(
        self,
        columns: Sequence[str],
        values: Mapping[str, str] | None = None,
        *,
        when: str = "",
        differing: Sequence[str] = (),
    ) -> MergeRule:
        """Set *columns* of matching rows to the source's, and others to *values* (SQL by column).

        Args:
            differing: Update only if one of these columns is not the same in both rows.
        """
        return self._with("matched", _from_source(columns) | dict(values or {}), when, tuple(differing))

    def insert(self, columns: Sequence[str], *, when: str = "") -> MergeRule:
        """Insert source rows without a match, with these *columns*. Other columns become null."""
        return self._with("new", _from_source(columns), when)

    def delete(self, *, when: str) -> MergeRule:
        """Delete target rows that match."""
        return self._with("matched", None, when)

    def delete_missing(self, *, when: str) -> MergeRule:
        """Delete target rows that match no source row."""
        return self._with("missing", None, when)

    def condition(self, dialect: Dialect) -> str:
        """Return the condition of a match, as SQL."""
        names = map(dialect.name, self.keys)
        # In parentheses: DataFusion's parser takes what follows FROM, also an AND, for its right side.
        return " AND ".join(f"(t.{name} IS NOT DISTINCT FROM s.{name})" for name in names)

    def _with(
        self, rows: Rows, values: Mapping[str, str] | None, when: str, differing: tuple[str, ...] = ()
    ) -> MergeRule:
        return replace(self, clauses=(*self.clauses, Clause(rows, values, when, differing)))


FROM_SOURCE = ""
"""Value of a column that comes from the source's column of the same name."""


def _from_source(columns: Sequence[str]) -> dict[str, str]:
    return dict.fromkeys(columns, FROM_SOURCE)


def assignments(clause: Clause, dialect: Dialect) -> dict[str, str]:
    """Return the values of a clause: SQL by quoted column. Empty for a delete."""
    return {
        dialect.name(column): f"s.{dialect.name(column)}" if value == FROM_SOURCE else value
        for column, value in (clause.values or {}).items()
    }


@dataclass(frozen=True)
class Merged:
    """Numbers of rows that a MERGE changed, as its commit counts them."""

    inserted: int
    updated: int
    deleted: int
    commits: int = field(default=0, compare=False)
    """Number of commits that changed them."""

    @staticmethod
    def of(inserted: int, updated: int, deleted: int) -> Merged:
        """Return the numbers of one MERGE. It made no commit if it changed no row."""
        return Merged(inserted, updated, deleted, commits=int(any((inserted, updated, deleted))))

    @property
    def rows(self) -> int:
        return self.inserted + self.updated + self.deleted

    def __add__(self, other: Merged) -> Merged:
        return Merged(
            self.inserted + other.inserted,
            self.updated + other.updated,
            self.deleted + other.deleted,
            self.commits + other.commits,
        )


NOTHING: Final = Merged(0, 0, 0)
