"""Settings section ``capture``: reading the change stream and writing bronze. Used by `cli` and `jobs` only."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from strandline.model.bson.extended_json import JsonMode
from strandline.settings.selection import SelectionSettings, entry_problems
from strandline.settings.snapshot import SnapshotSettings

_CONTROL_INTERVAL_MS = 10_000


class CaptureSettings(SelectionSettings, SnapshotSettings):
    """Reading the change stream and writing bronze. Names are Debezium's, in snake case."""

    max_batch_size: int = Field(100_000, ge=1, description="Maximum events per commit.")
    max_queue_size_in_bytes: int = Field(
        128 * 1024 * 1024, ge=1024, description="Maximum size of the events of one commit, in bytes."
    )
    poll_interval_ms: int = Field(200, ge=1, description="Maximum wait for a batch to fill, in ms.")
    cursor_max_await_time_ms: int = Field(
        200,
        ge=1,
        description="Maximum time for which the server waits for new events before it returns an empty answer, in ms.",
    )
    heartbeat_interval_ms: int = Field(
        60_000,
        ge=100,
        description="Interval at which an idle stream commits its resume token, in ms. Set it shorter than the "
        "time that the source's oplog covers.",
    )
    on_history_lost: Literal["fail", "heal", "restart_at_oldest"] = Field(
        "fail",
        description="Action when the oplog no longer holds the committed position. `fail`: stop. `heal`: record a "
        "gap and take a new snapshot. `restart_at_oldest`: record a gap and continue at the oldest "
        "event that the oplog still holds.",
    )
    headroom_warning_minutes: int = Field(
        60,
        ge=0,
        description="Minimum time until the oplog drops the committed position, in minutes. Below it, `status` "
        "warns, and `stop` and `pause` are refused.",
    )
    start_at: str | None = Field(
        None,
        description="Start time of the very first run, in ISO 8601 (UTC if it names no time zone). null: now. After "
        "`offsets reset`, capture always starts at now.",
    )
    connect_max_attempts: int = Field(
        16,
        ge=1,
        description="Maximum attempts without progress that no server answers, or in which the lake cannot be read or "
        "written. Then capture ends. Elections do not count.",
    )
    connect_backoff_initial_delay_ms: int = Field(
        1000, ge=1, description="Delay before the first retry, in ms. It doubles with each failure."
    )
    start_attempts: int | None = Field(
        None,
        ge=1,
        description="Maximum attempts to reach MongoDB at the start of capture, with the delays of "
        "`connect_backoff_initial_delay_ms`. A wrong configuration is never tried again. null: "
        "`connect_max_attempts`; with `--once`, or at a terminal, 1.",
    )
    errors_max_retries: int = Field(
        -1,
        ge=-1,
        description="Maximum failures without progress that a server answered (an election, a killed cursor). Then "
        "capture ends. -1: no limit. 0: the first failure ends capture. Attempts that no server "
        "answers count under `connect_max_attempts`.",
    )
    errors_retry_limit: int = Field(
        0,
        ge=-1,
        description="Maximum retries of one event that the server cannot send. Then capture passes the event. -1: "
        "no limit. 0: no retry.",
    )
    errors_retry_delay_max_ms: int = Field(120_000, ge=1, description="Maximum delay between two retries, in ms.")
    errors_tolerance: Literal["none", "all"] = Field(
        "all",
        description="Action on a streamed document that cannot be shown as JSON. `all`: store its bytes and write "
        "a dead letter. `none`: stop capture.",
    )
    cursor_oversize_handling_mode: Literal["fail", "skip", "split"] = Field(
        "fail",
        description="Action on a change event above 16 MiB. `fail`: stop. `skip`: store the event without its "
        "documents. `split`: let the server split the event (MongoDB 6.0.9 and newer).",
    )
    cursor_oversize_skip_threshold: int = Field(
        0,
        ge=0,
        description="In mode `skip`, omit documents above this size, in bytes. 0: no limit.",
    )
    guardrail_collections_max: int = Field(
        0, ge=0, description="Maximum number of captured collections. It is checked when capture starts. 0: no limit."
    )
    guardrail_collections_limit_action: Literal["warn", "fail"] = Field(
        "warn",
        description="Action when there are more collections than `guardrail_collections_max`: log a warning, or stop.",
    )
    engine: Literal["auto", "spark", "native"] | None = Field(
        None,
        description="Writer of the bronze table. `native`: worker processes of capture and delta-rs, without Spark, "
        "into a folder of this machine or S3. `spark`: Spark, into any place. `auto`: `native` if it can write the "
        "lake (a folder with hard links or S3, a local `spark.master`, tables that delta-rs can write), else `spark`. "
        "null: as `engine`.",
    )
    json_columns: Literal["stored", "derived"] = Field(
        "derived",
        description="`stored`: capture writes the JSON columns of bronze, such as `after` and `before`. `derived`: "
        "readers compute them from `envelope`.",
    )
    json_serialization_mode: JsonMode = Field(
        "extended",
        description="Extended JSON format of documents in the Debezium view. `strict`: version 1. `extended`: "
        "version 2, canonical. `relaxed`: version 2, relaxed. `legacy`: version 1 with relaxed "
        "`updatedFields` (Debezium's default).",
    )

    @model_validator(mode="after")
    def _check_capture(self) -> CaptureSettings:
        name, entries = "snapshot_include_collection_list", self.snapshot_include_collection_list
        problems = entry_problems(name, entries, "collection", self.filters_match_mode)
        if self.guardrail_collections_limit_action == "fail" and not self.guardrail_collections_max:
            problems.append("guardrail_collections_limit_action stands without guardrail_collections_max")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def control_interval_seconds(self) -> float:
        """Interval, in seconds, at which a run checks for pause and stop, and writes collected notifications."""
        return min(self.heartbeat_interval_ms, _CONTROL_INTERVAL_MS) / 1000

    @property
    def silence_seconds(self) -> float:
        """Time without a batch after which a capture of another machine counts as ended."""
        return max(300.0, 3 * self.heartbeat_interval_ms / 1000)

    @property
    def lost_history_policy(self) -> Literal["fail", "heal", "restart_at_oldest"]:
        """Action on lost history: ``heal`` if the snapshot mode says so, else ``on_history_lost``."""
        return "heal" if self.snapshot_policy.heals else self.on_history_lost
