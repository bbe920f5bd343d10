"""Result of one node of gold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class GoldResult:
    """Result of one node.

    *rows* is the number of rows written by this run; None for a view and for a node that was not built.
    *reason* says in one line how and why the node was built, or why not.
    """

    name: str
    materialized: str
    status: Literal["built", "unchanged", "skipped", "failed", "orphaned"]
    rows: int | None = None
    reason: str = ""
    seconds: float = 0.0
    blocked_by: str = ""
    engine: str | None = None
    """Engine that wrote the rows: ``Spark`` or ``delta-rs``. None: a view, or not built."""

    @property
    def blocks(self) -> bool:
        """Return True if nodes that read this node cannot be built."""
        return self.status in ("skipped", "failed")
