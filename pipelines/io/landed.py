"""What an append that was asked for once has done."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.errors import RetriableError


@dataclass(frozen=True)
class Landed:
    """A commit that was proven to be one's own."""

    rows: int
    restored_at: int | None
    """The version of the newest RESTORE among the table's newest commits."""


class WriterEnded(RetriableError):
    """This run can append no more; the next one goes on. Nothing was lost, and trying again within this one is in vain."""
