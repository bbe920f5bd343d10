"""The part of ``capture`` that says what snapshots read, and when, and who may ask for one. Seen by `settings`, `cli` and `jobs` only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from importlib.metadata import entry_points
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_settings import NoDecode

from pipelines.errors import ConfigurationError
from pipelines.model.namespaces import Namespace
from pipelines.model.snapshot_policy import ChunkSize, SnapshotMode, SnapshotPolicy, Snapshotter, query_problems
from pipelines.settings.selection import Names, Section, is_namespace, key_problems, split_names

_SNAPSHOTTERS = "strandline.snapshotters"
_FLAGS = "snapshot_mode_configuration_based_"


class SnapshotSettings(Section):
    """Names are Debezium's, in snake case."""

    snapshot_mode: SnapshotMode = Field(
        "initial",
        description="When what exists already is read: at the first start (initial; initial_only ends then), at every start (always), "
        "also when the history is lost (when_needed), never (no_data), by the three flags below (configuration_based), or as your own code "
        "says (custom).",
    )
    snapshot_mode_custom_name: str | None = Field(
        None,
        min_length=1,
        description="For mode custom: an installed entry point of the group `strandline.snapshotters`.",
    )
    snapshot_mode_configuration_based_snapshot_data: bool = Field(
        False, description="Read what exists at the first start."
    )
    snapshot_mode_configuration_based_start_stream: bool = Field(True, description="Capture changes after that.")
    snapshot_mode_configuration_based_snapshot_on_data_error: bool = Field(
        False, description="Read it again when the history is lost."
    )
    snapshot_include_collection_list: Names = Field(
        (), description="Which of the captured collections a snapshot reads, as `filters_match_mode` says; empty: all."
    )
    snapshot_collection_filter_overrides: dict[str, str] = Field(
        default_factory=dict,
        description="By database.collection, which of its documents a snapshot reads: a query as JSON text.",
    )
    snapshot_fetch_size: int = Field(10_000, ge=1, description="Documents of one answer of the server.")
    snapshot_delay_ms: int = Field(0, ge=0, description="Wait before a snapshot begins; the stream does not wait.")
    snapshot_max_threads: int = Field(2, ge=1, le=256, description="Chunks that are read at the same time.")
    snapshot_chunk_size: int = Field(250_000, ge=1, description="Documents of one unit of resumption, about.")
    snapshot_chunk_size_in_bytes: int = Field(
        256 * 1024 * 1024, ge=1024, description="Bytes of its documents, about: what is reached first counts."
    )

    signal_enabled_channels: Annotated[tuple[Literal["table", "file", "source"], ...], NoDecode] = Field(
        ("table",),
        description="Where signals come from: rows of `control.signals`, lines of a file, inserts into a source collection.",
    )
    signal_file: str | None = Field(
        None, min_length=1, description="For the file channel: a file of JSON lines, one signal each."
    )
    signal_data_collection: str | None = Field(
        None,
        description="For the source channel: database.collection, in the stream; captured as data only if the filters admit it.",
    )
    signal_poll_interval_ms: int = Field(5_000, ge=1, description="Shortest time between two looks for signals.")
    notification_enabled_channels: Annotated[tuple[Literal["table", "log"], ...], NoDecode] = Field(
        ("table", "log"),
        description="Where it is told what snapshots and signals did: rows of `control.notifications`, the log.",
    )

    @field_validator(
        "snapshot_include_collection_list", "signal_enabled_channels", "notification_enabled_channels", mode="before"
    )
    @classmethod
    def _split_list(cls, value: Any) -> Any:
        return split_names(value)

    @field_validator("snapshot_collection_filter_overrides")
    @classmethod
    def _queries(cls, value: dict[str, str]) -> dict[str, str]:
        problems = [
            f"the query of {name} {problem}" for name, query in value.items() for problem in query_problems(query)
        ]
        if problems:
            raise ValueError("; ".join(problems))
        return value

    @model_validator(mode="after")
    def _what_needs_each_other(self) -> SnapshotSettings:
        problems = list(self._mode_problems())
        for channel, key in (("file", "signal_file"), ("source", "signal_data_collection")):
            is_open, is_named = channel in self.signal_enabled_channels, getattr(self, key) is not None
            if is_open != is_named:
                problems.append(f"{key} and the channel {channel!r} of signal_enabled_channels need each other")
        if self.signal_data_collection is not None and not is_namespace(self.signal_data_collection):
            problems.append("signal_data_collection is no database.collection")
        problems += key_problems("snapshot_collection_filter_overrides", self.snapshot_collection_filter_overrides)
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _mode_problems(self) -> Iterator[str]:
        name = self.snapshot_mode_custom_name
        if (self.snapshot_mode == "custom") != (name is not None):
            yield "snapshot_mode: custom and snapshot_mode_custom_name need each other"
        if self.snapshot_mode != "configuration_based":
            flags = {name: field for name, field in SnapshotSettings.model_fields.items() if name.startswith(_FLAGS)}
            told = [flag for flag, field in flags.items() if getattr(self, flag) != field.default]
            yield from (f"{flag} stands without snapshot_mode: configuration_based" for flag in told)
        # Only where one is named: every installed distribution is looked at.
        if name is not None and name not in (installed := entry_points(group=_SNAPSHOTTERS).names):
            yield f"no snapshotter {name!r} is installed, {', '.join(sorted(installed)) or 'none'} is"

    @property
    def signal_namespace(self) -> Namespace | None:
        """``signal_data_collection`` as a plain value."""
        return None if self.signal_data_collection is None else Namespace.parse(self.signal_data_collection)

    @property
    def chunk_size(self) -> ChunkSize:
        """How large a snapshot's chunks are: what is reached first counts."""
        return ChunkSize(self.snapshot_chunk_size, self.snapshot_chunk_size_in_bytes)

    @cached_property
    def snapshotter(self) -> Snapshotter | None:
        """Code of mode ``custom``, made once. None in every other mode.

        Raises:
            ConfigurationError: The code failed.
        """
        if self.snapshot_mode != "custom":
            return None
        with _code_of(self.snapshot_mode_custom_name):
            (found,) = entry_points(group=_SNAPSHOTTERS, name=self.snapshot_mode_custom_name or "")
            made: Snapshotter = found.load()()
            return made

    @property
    def snapshot_policy(self) -> SnapshotPolicy:
        """What ``snapshot_mode`` means now, as a plain value.

        Raises:
            ConfigurationError: The code of mode ``custom`` failed.
        """
        if self.snapshotter is not None:
            with _code_of(self.snapshot_mode_custom_name):
                return SnapshotPolicy.from_snapshotter(self.snapshotter)
        return SnapshotPolicy.of(
            self.snapshot_mode,
            data=self.snapshot_mode_configuration_based_snapshot_data,
            stream=self.snapshot_mode_configuration_based_start_stream,
            on_data_error=self.snapshot_mode_configuration_based_snapshot_on_data_error,
        )


@contextmanager
def _code_of(name: str | None) -> Iterator[None]:
    """Raise ConfigurationError, with the class of the snapshotter, for whatever the block raises: it is somebody else's code."""
    try:
        yield
    except Exception as error:
        classes = ", ".join(found.value for found in entry_points(group=_SNAPSHOTTERS, name=name or ""))
        raise ConfigurationError(
            f"the snapshotter {name} ({classes}) failed: {type(error).__name__}: {error}",
            next_step="mend it, or set capture.snapshot_mode",
        ) from error
