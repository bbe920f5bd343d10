"""Settings section ``maintenance``: retention times. Used by `settings`, `cli` and `jobs` only."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from strandline.settings.selection import Section


def _retention(hours: int, rows: str) -> Any:
    return Field(hours, ge=1, description=f"Age at which `maintain` deletes {rows}, in hours. null: never.")


class MaintenanceSettings(Section):
    """Retention of removed files, logs, tombstones and rows of control tables."""

    max_downtime_hours: int = Field(
        24,
        ge=1,
        description="Maximum time that a reader of an older table version may be offline, in hours. `maintain` keeps "
        "removed files and logs at least that long. It keeps them exactly that long in gold and control tables. In "
        "bronze it keeps them for as long as silver is behind, up to 30 days.",
    )
    retention_hours: int = Field(
        168,
        ge=1,
        description="Time for which `maintain` keeps removed files of bronze and silver, in hours. At least "
        "`max_downtime_hours`.",
    )
    log_retention_hours: int | None = Field(
        None,
        ge=1,
        description="Time for which the transaction logs of bronze and silver are kept, in hours. null: "
        "`retention_hours`. Delta refuses a shorter time. Older versions and changes cannot be read: a "
        "reader that was offline longer does a full scan.",
    )
    log_max_files: int | None = Field(
        10_000,
        ge=1,
        description="Approximate maximum of log files per table. Above it, the log and the removed files are kept "
        "for fewer days, but at least for `max_downtime_hours`. Applies only to a lake in local "
        "folders. null: no limit.",
    )
    cuts_retention_hours: int | None = _retention(168, "cuts, except the newest")
    notifications_retention_hours: int | None = _retention(720, "notifications")
    signals_retention_hours: int | None = _retention(720, "processed signals, except signals of the signal file")
    dead_letters_retention_hours: int | None = _retention(720, "resolved dead letters (counted from their replay)")
    quality_retention_hours: int | None = _retention(
        2160, "results of quality runs, except results that the next run needs"
    )
    reconcile_retention_hours: int | None = _retention(2160, "differences that `reconcile` found")

    bronze_retention_days: int | None = Field(
        None,
        ge=1,
        description="Age, by the source's time, above which `maintain` compacts the events of bronze, in days: of each "
        "document its newest state then stays, and earlier events go. null: never. Bronze can then show no earlier "
        "state, and the offset cannot be moved back further.",
    )
    tombstone_retention_hours: int | None = Field(
        240,
        ge=1,
        description="Age at which `maintain` purges tombstones, in hours, by the source's time. null: never. An offset "
        "reset may go back this far over changes that were never captured.",
    )

    max_threads: int = Field(4, ge=1, le=64, description="Maximum tables that `maintain` processes at the same time.")

    @model_validator(mode="after")
    def _check_retention(self) -> MaintenanceSettings:
        if self.retention_hours < self.max_downtime_hours:
            raise ValueError(
                f"retention_hours ({self.retention_hours}) is shorter than "
                f"max_downtime_hours ({self.max_downtime_hours}): "
                "what silver has not read yet could be removed"
            )
        if self.log_retention_hours is not None and self.log_retention_hours < self.retention_hours:
            raise ValueError(
                f"log_retention_hours ({self.log_retention_hours}) is shorter than "
                f"retention_hours ({self.retention_hours}): "
                "Delta keeps no file longer than the log that names it"
            )
        return self
