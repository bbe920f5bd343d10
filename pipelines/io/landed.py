"""Outcomes of an append that is to happen once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pipelines.errors import RetriableError
from pipelines.io.commits import Commit


@dataclass(frozen=True)
class Landed:
    """The commit is in the table and was proven to be one's own."""

    rows: int
    restored_at: int | None
    """The version of a RESTORE among the commits that were looked at."""
    table_id: str | None = None
    """The id of the table that holds the commit, if another table may have taken the place of the one that was opened."""
    looked_up_to: int = field(default=-1, compare=False)
    """The newest version that was looked at."""


@dataclass(frozen=True)
class Taken:
    """The application had already committed this sequence or a later one. Nothing was appended."""


@dataclass(frozen=True)
class Contended:
    """Another commit of the same application came first. Nothing was appended, and the sequence may still be free."""


class WriterEnded(RetriableError):
    """This run can append no more; the next one goes on. Nothing was lost, and trying again within this one is in vain."""


def look_for(proof: str, commits: Iterable[Commit], *, after: int) -> Landed | Taken:
    """The outcome of an append whose commit carries *proof*, if it landed. Reads all *commits*; keeps none of them.

    Args:
        commits: Those later than the version *after*, newest first.
    """
    rows: int | None = None
    restored_at: int | None = None
    newest = after
    for commit in commits:
        newest = max(newest, commit.version)
        if commit.operation == "RESTORE" and restored_at is None:
            restored_at = commit.version
        if commit.user_metadata == proof:
            rows = int(commit.metrics["numOutputRows"])
    return Taken() if rows is None else Landed(rows, restored_at, looked_up_to=newest)
