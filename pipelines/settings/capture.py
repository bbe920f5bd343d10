"""The section ``capture``: how the change stream is read, and how bronze is written. Seen by `cli` and `jobs` only."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from pipelines.model.bson.extended_json import JsonMode
from pipelines.settings.selection import SelectionSettings, entry_problems
from pipelines.settings.snapshot import SnapshotSettings

_CONTROL_INTERVAL_MS = 10_000


class CaptureSettings(SelectionSettings, SnapshotSettings):
    """What is captured, and how. Names are Debezium's, in snake case."""

    max_batch_size: int = Field(100_000, ge=1, description="Events of one commit.")
    max_queue_size_in_bytes: int = Field(128 * 1024 * 1024, ge=1024, description="Bytes of events of one commit.")
    poll_interval_ms: int = Field(200, ge=1, description="Longest wait for a batch to fill.")
    cursor_max_await_time_ms: int = Field(200, ge=1, description="Longest that the server holds back an empty answer.")
    heartbeat_interval_ms: int = Field(
        60_000,
        ge=100,
        description="Interval, in ms, at which an idle stream commits its token. The token must stay younger than the source's oplog.",
    )
    on_history_lost: Literal["fail", "heal", "restart_at_oldest"] = Field(
        "fail",
        description="When the oplog no longer holds the position: stop; record a gap and read everything again; or record it and go on.",
    )
    headroom_warning_minutes: int = Field(
        60,
        ge=0,
        description="`stop` and `pause` are refused, and `status` warns, when the source forgets the position sooner than that.",
    )
    start_at: str | None = Field(
        None,
        description="Where the very first run starts, as an ISO 8601 time (UTC where it names no zone); default: now. "
        "After `offsets reset` capture starts at now.",
    )
    connect_max_attempts: int = Field(
        16,
        ge=1,
        description="Maximum attempts without progress in which nobody answers, before the capture ends. Elections do not count.",
    )
    connect_backoff_initial_delay_ms: int = Field(
        1000, ge=1, description="Delay before the first retry, in ms. It doubles with each failure."
    )
    errors_max_retries: int = Field(
        -1,
        ge=-1,
        description="Maximum failures without progress in which a server answered (an election, a killed cursor), before the capture "
        "ends; -1: no limit; 0: the first one ends it. Attempts in which nobody answered do not count.",
    )
    errors_retry_limit: int = Field(
        0,
        ge=-1,
        description="Maximum repeated reads of one event that cannot be sent, before the event is passed; -1: no limit.",
    )
    errors_retry_delay_max_ms: int = Field(120_000, ge=1, description="Maximum delay between two retries, in ms.")
    errors_tolerance: Literal["none", "all"] = Field(
        "all",
        description="Whether a streamed document that JSON cannot show lands as bytes with a dead letter, or stops the capture.",
    )
    cursor_oversize_handling_mode: Literal["fail", "skip", "split"] = Field(
        "fail",
        description="Events above 16 MiB: stop, land without their documents, or have the server split them (6.0.9 and newer).",
    )
    cursor_oversize_skip_threshold: int = Field(
        0,
        ge=0,
        description="Bytes of a document that is not wanted either when skipping; 0: whatever MongoDB can send is.",
    )
    guardrail_collections_max: int = Field(
        0, ge=0, description="More collections than that are not meant to be captured; 0: no limit."
    )
    guardrail_collections_limit_action: Literal["warn", "fail"] = Field(
        "warn", description="What happens at the start if there are more."
    )
    engine: Literal["spark", "native"] = Field(
        "spark",
        description="Who writes bronze: Spark, or worker processes of capture itself, into a folder of its machine.",
    )
    json_columns: Literal["stored", "derived"] = Field(
        "derived",
        description="Whether `after` and `before` are written at capture, or read from `envelope` when asked for.",
    )
    json_serialization_mode: JsonMode = Field(
        "extended",
        description="Extended JSON of documents in the Debezium view: v1 (strict), canonical v2 (extended), relaxed v2 (relaxed), or v1 "
        "with relaxed `updatedFields` (legacy, Debezium's default).",
    )

    @model_validator(mode="after")
    def _what_stands_alone(self) -> CaptureSettings:
        name, entries = "snapshot_include_collection_list", self.snapshot_include_collection_list
        problems = entry_problems(name, entries, "collection", self.filters_match_mode)
        if self.guardrail_collections_limit_action == "fail" and not self.guardrail_collections_max:
            problems.append("guardrail_collections_limit_action stands without guardrail_collections_max")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def control_interval_seconds(self) -> float:
        """Longest time until a run sees that the source was paused or stopped, and for which notifications wait for others."""
        return min(self.heartbeat_interval_ms, _CONTROL_INTERVAL_MS) / 1000

    @property
    def lost_history_policy(self) -> Literal["fail", "heal", "restart_at_oldest"]:
        """``on_history_lost``; a snapshot mode that heals goes over it."""
        return "heal" if self.snapshot_policy.heals else self.on_history_lost
