"""Settings section ``proof``: the continuous comparison of silver with the source. Used by `cli` and `jobs` only."""

from __future__ import annotations

from pydantic import Field

from strandline.settings.selection import Section


class ProofSettings(Section):
    """Continuous comparison of silver with the source, in `run` and in `reconcile --continuous`."""

    budget: int | None = Field(
        None,
        ge=1,
        description="Documents per second that the comparison reads from the source, on average. null: `run` compares "
        "nothing, and asks the source nothing.",
    )
    repair: bool = Field(
        False,
        description="Read documents that differ into bronze again, as `reconcile --repair` does. Silver merges them.",
    )
