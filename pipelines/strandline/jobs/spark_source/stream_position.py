"""Positions of a Spark stream over MongoDB. Spark stores them in the checkpoint as JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from strandline.errors import ContractError

_FORMAT: Final = 1


@dataclass(frozen=True)
class Position:
    """The end of one batch of the stream, as bronze holds it in the last row of the batch."""

    batch: int = 0
    """Number of the batch. 0: nothing was read."""
    epoch: int = 1
    token: str | None = None
    """Resume token after the batch, as Extended JSON. None: the stream has not begun."""
    last_event: str | None = None
    """Cluster time of the last event before the token, in hex. None: unknown."""
    snapshot_id: str | None = None
    """Snapshot that this batch holds. None: the batch holds change events."""
    ends_outside_transaction: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the position with values that JSON has."""
        return {
            "format": _FORMAT,
            "batch": self.batch,
            "epoch": self.epoch,
            "token": self.token,
            "last_event": self.last_event,
            "snapshot": self.snapshot_id,
            "outside": self.ends_outside_transaction,
        }

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> Position:
        """Return the position of `to_json`.

        Raises:
            ContractError: Another release, or another program, wrote it.
        """
        try:
            if content["format"] != _FORMAT:
                raise KeyError(content["format"])
            return Position(
                *(content[name] for name in ("batch", "epoch", "token", "last_event", "snapshot", "outside"))
            )
        except KeyError:
            raise ContractError(
                "the checkpoint's offset was not written by this release of Strandline",
                next_step="use the release that wrote it, or another checkpointLocation",
            ) from None
