"""The part of the settings that says how tables are maintained. Seen by `settings`, `cli` and `jobs` only."""

from __future__ import annotations

from pydantic import Field, model_validator

from pipelines.selection_settings import Section


class MaintenanceSettings(Section):
    """How long files that no table needs any more are kept for those who still read them, and tombstones for what comes late."""

    max_downtime_hours: int = Field(72, ge=1, description="Longest time that silver, or a reader of an older version, may be away.")
    retention_hours: int = Field(
        168, ge=1, description="`maintain` removes no file that was needed within that time. No less than the downtime."
    )

    tombstone_retention_hours: int | None = Field(
        240,
        ge=1,
        description="`maintain` purges tombstones older than that, by the source's time; null: none. So long a position may be moved back "
        "over what was never captured.",
    )

    max_threads: int = Field(4, ge=1, le=64, description="Tables that `maintain` works on at once.")

    @model_validator(mode="after")
    def _outlasts_a_downtime(self) -> MaintenanceSettings:
        if self.retention_hours < self.max_downtime_hours:
            raise ValueError(
                f"retention_hours ({self.retention_hours}) is shorter than max_downtime_hours ({self.max_downtime_hours}): "
                "what silver has not read yet could be removed"
            )
        return self
