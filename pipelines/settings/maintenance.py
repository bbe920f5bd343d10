"""The part of the settings that says how tables are maintained. Seen by `settings`, `cli` and `jobs` only."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from pipelines.settings.selection import Section


def _rows_kept(hours: int, of: str) -> Any:
    return Field(hours, ge=1, description=f"`maintain` deletes {of} older than that, in hours; null: none.")


class MaintenanceSettings(Section):
    """How long removed files, logs, tombstones and rows of control tables are kept."""

    max_downtime_hours: int = Field(
        24,
        ge=1,
        description="Longest time, in hours, that a reader of an older version may be away. `maintain` keeps no file and no log shorter; "
        "those of control tables no longer; those of bronze as long as silver is behind, up to 30 days.",
    )
    retention_hours: int = Field(
        168,
        ge=1,
        description="Time, in hours, for which `maintain` keeps removed files of bronze and silver. Not shorter than max_downtime_hours.",
    )
    log_retention_hours: int | None = Field(
        None,
        ge=1,
        description="Time, in hours, for which the log of bronze and silver goes back; null: retention_hours. Delta refuses a shorter one. Older versions "
        "and changes cannot be read: a reader that was away longer reads the whole table.",
    )
    log_max_files: int | None = Field(
        10_000,
        ge=1,
        description="Log files of one table, about. The log and the removed files of a table with more are kept for fewer days, and at "
        "least for max_downtime_hours. Only in a lake of local folders. null: no limit.",
    )
    cuts_retention_hours: int | None = _rows_kept(168, "cuts, except the newest,")
    notifications_retention_hours: int | None = _rows_kept(720, "notifications")
    signals_retention_hours: int | None = _rows_kept(
        720, "signals that were acted upon, except those of the signal file,"
    )
    dead_letters_retention_hours: int | None = _rows_kept(
        720, "dead letters that were resolved, by the time of their replay,"
    )
    quality_retention_hours: int | None = _rows_kept(
        2160, "results of quality runs, except those that the next run needs,"
    )
    reconcile_retention_hours: int | None = _rows_kept(2160, "differences that `reconcile` found")

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
        if self.log_retention_hours is not None and self.log_retention_hours < self.retention_hours:
            raise ValueError(
                f"log_retention_hours ({self.log_retention_hours}) is shorter than retention_hours ({self.retention_hours}): "
                "Delta keeps no file longer than the log that names it"
            )
        return self
