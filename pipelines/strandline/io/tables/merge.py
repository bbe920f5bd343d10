"""MERGE as one SQL statement, built clause by clause."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Final

from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Merged:
    """Numbers of target rows that a MERGE changed."""

    inserted: int
    updated: int
    deleted: int
    commits: int = field(default=0, compare=False)
    """Number of commits that changed them."""

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


def merge_metrics(counts: Merged, rows: int) -> dict[str, int]:
    """Return the metrics of a commit whose new files have so many *rows*, by Delta's names."""
    return {
        "numTargetRowsInserted": counts.inserted,
        "numTargetRowsUpdated": counts.updated,
        "numTargetRowsDeleted": counts.deleted,
        "numTargetRowsCopied": rows - counts.inserted - counts.updated,
        "numOutputRows": rows,
    }


@dataclass(frozen=True)
class Merge:
    """MERGE of *source* (``s``) into *target* (``t``). The first clause that fits a row applies.

        merge = tables.merge(orders, changes, "t._key <=> s._key")
        merge.update({"total": "s.total"}, when="s.n > t.n").insert_all().execute()

    Conditions and values are SQL. Delta refuses two source rows for one target row. A source row without a match is
    inserted each time it occurs.

    Args:
        target: Table name from `Lake.sql`.
        running: Context in which the MERGE runs: it explains failures.
    """

    target: str
    source: DataFrame
    on: str
    clauses: tuple[str, ...] = ()
    running: Callable[[], AbstractContextManager[None]] = field(default=nullcontext, kw_only=True)

    def update(self, columns: Mapping[str, str], *, when: str = "") -> Merge:
        """Set *columns* (quoted name to value) of matching rows."""
        return self._with(
            "MATCHED", when, f"UPDATE SET {', '.join(f'{name} = {value}' for name, value in columns.items())}"
        )

    def update_all(self, *, when: str = "") -> Merge:
        return self._with("MATCHED", when, "UPDATE SET *")

    def delete(self, *, when: str) -> Merge:
        return self._with("MATCHED", when, "DELETE")

    def insert(self, columns: Mapping[str, str], *, when: str = "") -> Merge:
        """Insert rows without a match. Columns that are not named become null."""
        return self._with("NOT MATCHED", when, f"INSERT ({', '.join(columns)}) VALUES ({', '.join(columns.values())})")

    def insert_all(self) -> Merge:
        return self._with("NOT MATCHED", "", "INSERT *")

    def delete_unmatched(self, *, when: str) -> Merge:
        """Delete target rows that match no source row."""
        return self._with("NOT MATCHED BY SOURCE", when, "DELETE")

    def _with(self, fits: str, when: str, action: str) -> Merge:
        return replace(self, clauses=(*self.clauses, f"WHEN {fits}{f' AND {when}' if when else ''} THEN {action}"))

    def execute(self) -> Merged:
        """I/O: one commit, or none if no clause fits any row.

        This is SQL, because Delta's builder needs a plugin in a Spark Connect server, and Spark's `mergeInto` has no
        alias for the target.
        """
        braces = str.maketrans({"{": "{{", "}": "}}"})  # `sql` formats its text, and a name may contain braces
        head = f"MERGE INTO {self.target} AS t USING ".translate(braces)
        rest = f" AS s ON {self.on} {' '.join(self.clauses)}".translate(braces)
        with self.running():
            (done,) = self.source.sparkSession.sql(f"{head}{{source}}{rest}", source=self.source).collect()
        changed = (done["num_inserted_rows"], done["num_updated_rows"], done["num_deleted_rows"])
        return Merged(*changed, commits=int(any(changed)))
