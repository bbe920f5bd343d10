"""The part of ``capture`` that says what snapshots read, and when. Seen by `settings`, `cli` and `jobs` only."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from pipelines.model.snapshot_policy import SnapshotMode, SnapshotPolicy, query_problems
from pipelines.selection_settings import Names, Section, split_names


class SnapshotSettings(Section):
    """Names are Debezium's, in snake case."""

    snapshot_mode: SnapshotMode = Field(
        "initial",
        description="When what exists already is read: at the first start (initial; initial_only ends then), at every start (always), "
        "also when the history is lost (when_needed), never (no_data), or by the three flags below (configuration_based).",
    )
    snapshot_mode_configuration_based_snapshot_data: bool = Field(False, description="Read what exists at the first start.")
    snapshot_mode_configuration_based_start_stream: bool = Field(True, description="Capture changes after that.")
    snapshot_mode_configuration_based_snapshot_on_data_error: bool = Field(False, description="Read it again when the history is lost.")
    snapshot_include_collection_list: Names = Field(
        (), description="Which of the captured collections a snapshot reads, as `filters_match_mode` says; empty: all."
    )
    snapshot_collection_filter_overrides: dict[str, str] = Field(
        default_factory=dict, description="By database.collection, which of its documents a snapshot reads: a query as JSON text."
    )
    snapshot_fetch_size: int = Field(10_000, ge=1, description="Documents of one answer of the server.")
    snapshot_delay_ms: int = Field(0, ge=0, description="Wait before a snapshot begins; the stream does not wait.")
    snapshot_max_threads: int = Field(2, ge=1, le=256, description="Chunks that are read at the same time.")
    snapshot_chunk_size: int = Field(100_000, ge=1, description="Documents of one unit of resumption.")

    @field_validator("snapshot_include_collection_list", mode="before")
    @classmethod
    def _split_list(cls, value: Any) -> Any:
        return split_names(value)

    @field_validator("snapshot_collection_filter_overrides")
    @classmethod
    def _queries(cls, value: dict[str, str]) -> dict[str, str]:
        problems = [f"the query of {name} {problem}" for name, query in value.items() for problem in query_problems(query)]
        if problems:
            raise ValueError("; ".join(problems))
        return value

    @property
    def snapshot_policy(self) -> SnapshotPolicy:
        """What ``snapshot_mode`` means, as a plain value."""
        return SnapshotPolicy.of(
            self.snapshot_mode,
            data=self.snapshot_mode_configuration_based_snapshot_data,
            stream=self.snapshot_mode_configuration_based_start_stream,
            on_data_error=self.snapshot_mode_configuration_based_snapshot_on_data_error,
        )
