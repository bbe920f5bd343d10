"""Outcomes of an append that is to happen once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pipelines.errors import RetriableError
from pipelines.io.commits import Commit


@dataclass(frozen=True)
class Appended:
    """The commit is in the table and was proven to be one's own."""

    rows: int
    restored_at: int | None
    """The version of a RESTORE among the commits that were looked at."""
    anchored: bool | None = field(default=None, compare=False)
    """Whether the `Anchor` stands where it stood. None: there was none, or the log no longer tells."""
    version: int = field(default=-1, compare=False)
    """The commit's own."""
    looked_up_to: int = field(default=-1, compare=False)
    """The newest version that was looked at."""


@dataclass(frozen=True)
class AlreadyAppended:
    """The application had already committed this sequence or a later one. Nothing was appended."""


@dataclass(frozen=True)
class LostRace:
    """Another commit of the same application came first. Nothing was appended, and the sequence may still be free."""


@dataclass(frozen=True)
class Anchor:
    """An earlier commit of the same writer: a table that does not hold it at this version is not the table that it was."""

    version: int
    proof: str


class WriterEnded(RetriableError):
    """This run can append no more; the next one goes on. Nothing was lost, and trying again within this one is in vain."""


def find_commit(
    proof: str, commits: Iterable[Commit], *, after: int, anchor: Anchor | None = None
) -> Appended | AlreadyAppended:
    """The outcome of an append whose commit carries *proof*, if it landed. Reads all *commits*; keeps none of them.

    Args:
        commits: Those later than the version *after*, and *anchor*'s, newest first.
    """
    found: Commit | None = None
    restored_at: int | None = None
    anchored: bool | None = None
    newest = after
    for commit in commits:
        if anchor is not None and commit.version == anchor.version:
            anchored = commit.user_metadata == anchor.proof
        if commit.version <= after:
            continue
        newest = max(newest, commit.version)
        if commit.operation == "RESTORE" and restored_at is None:
            restored_at = commit.version
        if commit.user_metadata == proof:
            found = commit
    if found is None:
        return AlreadyAppended()
    return Appended(
        int(found.metrics["numOutputRows"]), restored_at, anchored, version=found.version, looked_up_to=newest
    )
