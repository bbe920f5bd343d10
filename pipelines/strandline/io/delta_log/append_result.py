"""Outcomes of an append that must happen exactly once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from strandline.errors import RetriableError
from strandline.io.delta_log.commits import Commit


@dataclass(frozen=True)
class Appended:
    """The commit is in the table, and its proof shows that it is ours."""

    rows: int
    restored_at: int | None
    """Version of a RESTORE among the commits that were searched. None: no RESTORE."""
    anchored: bool | None = field(default=None, compare=False)
    """True if the `Anchor` is still at its version. None: there is no anchor, or the log no longer holds it."""
    version: int = field(default=-1, compare=False)
    """Version of the commit."""
    looked_up_to: int = field(default=-1, compare=False)
    """Newest version that was searched."""


@dataclass(frozen=True)
class AlreadyAppended:
    """The application had already committed this sequence or a later one. Nothing was appended."""


@dataclass(frozen=True)
class LostRace:
    """Another commit of the same application came first. Nothing was appended, and the sequence may still be free."""


@dataclass(frozen=True)
class Anchor:
    """An earlier commit of the same writer. A table without this commit at this version is another table."""

    version: int
    proof: str


class WriterEnded(RetriableError):
    """This process can append no more. Nothing is lost; run the command again. A retry in this process is useless."""


def find_commit(
    proof: str, commits: Iterable[Commit], *, after: int, anchor: Anchor | None = None
) -> Appended | AlreadyAppended:
    """Return the outcome of an append: look for the commit that carries *proof*.

    Args:
        commits: Commits after version *after*, and the anchor's commit, newest first. Read once, not kept.
    """
    match: Commit | None = None
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
            match = commit
    if match is None:
        return AlreadyAppended()
    return Appended(
        int(match.metrics["numOutputRows"]), restored_at, anchored, version=match.version, looked_up_to=newest
    )
