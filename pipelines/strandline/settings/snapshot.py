"""Snapshots, signals and notifications: settings of the section ``capture``.

Used by `settings`, `cli` and `jobs` only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from importlib.metadata import entry_points
from typing import Annotated, Any, Final, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_settings import NoDecode

from strandline.errors import ConfigurationError
from strandline.model.namespaces import Namespace
from strandline.model.schedule import INTERVAL, Schedule
from strandline.model.snapshot_policy import ChunkSize, Pace, SnapshotMode, SnapshotPolicy, Snapshotter, query_problems
from strandline.model.timestamps import seconds_of
from strandline.settings.selection import Names, Section, is_namespace, key_problems, split_names

_SNAPSHOTTERS = "strandline.snapshotters"
NO_BACKFILL: Final = "no_backfill"
"""Value of ``starts``: no snapshot, and no earlier time."""
_FLAGS = "snapshot_mode_configuration_based_"


class ScheduledCollection(Section):
    """Interval and key of one collection of ``capture.scheduled``."""

    every: str
    key: Names = ("_id",)

    @field_validator("every")
    @classmethod
    def _interval(cls, value: str) -> str:
        if re.match(INTERVAL, value) is None:
            raise ValueError("every is a number and s, m, h or d, such as 1h")
        return value

    @field_validator("key")
    @classmethod
    def _paths(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value or len(set(value)) < len(value) or not all(part for path in value for part in path.split(".")):
            raise ValueError("key must name at least one field, each once")
        return value


class SnapshotSettings(Section):
    """Snapshots, signals and notifications. Names are Debezium's, in snake case."""

    snapshot_mode: SnapshotMode = Field(
        "initial",
        description="Time of snapshots. `initial`: at the first start. `initial_only`: at the first start, then "
        "capture ends. `always`: at every start. `when_needed`: at the first start, and when the "
        "history is lost. `no_data`: never. `configuration_based`: by the three flags below. `custom`: "
        "by your own code.",
    )
    snapshot_mode_custom_name: str | None = Field(
        None,
        min_length=1,
        description="In mode `custom`, the name of an installed entry point of the group `strandline.snapshotters`.",
    )
    snapshot_mode_configuration_based_snapshot_data: bool = Field(
        False, description="In mode `configuration_based`, take a snapshot at the first start."
    )
    snapshot_mode_configuration_based_start_stream: bool = Field(
        True, description="In mode `configuration_based`, capture changes after the snapshot."
    )
    snapshot_mode_configuration_based_snapshot_on_data_error: bool = Field(
        False, description="In mode `configuration_based`, take a new snapshot when the history is lost."
    )
    snapshot_include_collection_list: Names = Field(
        (), description="Captured collections that a snapshot reads, in the syntax of `filters_match_mode`. Empty: all."
    )
    snapshot_collection_filter_overrides: dict[str, str] = Field(
        default_factory=dict,
        description="MongoDB query, as JSON text, that selects the documents of a snapshot, by database.collection. "
        "Collections without an entry are read whole.",
    )
    starts: dict[str, str] = Field(
        default_factory=dict,
        description="Start of single collections, by database.collection. `no_backfill`: at the first start, without "
        "a snapshot. `{from: TIME}`: at a time (ISO 8601) that the oplog still holds, without a snapshot. No snapshot "
        "reads these collections by itself; `strandline snapshot start` does. All other collections: `snapshot_mode`.",
    )
    scheduled: dict[str, ScheduledCollection] = Field(
        default_factory=dict,
        description="Views, time-series collections, and collections that the filters leave out, by "
        "database.collection: `{every: 1h, key: [_id]}`. Each is read whole at the interval `every` (a number and "
        "`s`, `m`, `h` or `d`). `key`: fields that identify a document. Changes between two reads are not seen.",
    )
    snapshot_fetch_size: int = Field(
        4_000, ge=1, description="Maximum documents that one answer of the server holds during a snapshot."
    )
    snapshot_delay_ms: int = Field(
        0, ge=0, description="Delay before a snapshot begins, in ms. The stream does not wait."
    )
    snapshot_max_threads: int = Field(
        2, ge=1, le=256, description="Maximum snapshot chunks that are read at the same time."
    )
    snapshot_max_documents_per_second: int = Field(
        0,
        ge=0,
        description="Maximum documents per second that a snapshot reads, on average. Chunks are then smaller than "
        "`snapshot_chunk_size`. 0: no limit.",
    )
    snapshot_slow_under_load: bool = Field(
        True,
        description="While the source is loaded (few free tickets, replication lag, flow control), wait up to a "
        "minute before each chunk of a snapshot. The user needs the role `clusterMonitor`.",
    )
    snapshot_reader: Literal["executors", "driver"] = Field(
        "executors",
        description="Processes that read snapshot chunks if Spark writes bronze. `driver`: the process of capture, for "
        "workers that cannot reach MongoDB. It holds `snapshot_max_threads` chunks in memory.",
    )
    snapshot_chunk_size: int = Field(
        250_000,
        ge=1,
        description="Approximate maximum of documents per snapshot chunk. An interrupted snapshot resumes after "
        "the last committed chunk.",
    )
    snapshot_chunk_size_in_bytes: int = Field(
        256 * 1024 * 1024,
        ge=1024,
        description="Approximate maximum size of a snapshot chunk's documents, in bytes. The limit that is reached "
        "first applies.",
    )

    signal_enabled_channels: Annotated[tuple[Literal["table", "file", "source"], ...], NoDecode] = Field(
        ("table",),
        description="Channels from which signals are read: rows of `control.signals` (`table`), lines of a file "
        "(`file`), inserts into a source collection (`source`).",
    )
    signal_file: str | None = Field(
        None,
        min_length=1,
        description="Path of the signal file: JSON lines, one signal per line. Required by the channel `file`.",
    )
    signal_data_collection: str | None = Field(
        None,
        description="Signal collection, as database.collection. Required by the channel `source`. It must be in "
        "the scope of the stream. It is captured as data only if the filters include it.",
    )
    signal_poll_interval_ms: int = Field(5_000, ge=1, description="Minimum time between two checks for signals, in ms.")
    notification_enabled_channels: Annotated[tuple[Literal["table", "log"], ...], NoDecode] = Field(
        ("table", "log"),
        description="Channels to which progress of snapshots and signals is written: rows of `control.notifications` "
        "(`table`), the log (`log`).",
    )

    @field_validator("signal_enabled_channels", "notification_enabled_channels", mode="before")
    @classmethod
    def _split_list(cls, value: Any) -> Any:
        return split_names(value)

    @field_validator("starts", mode="before")
    @classmethod
    def _start_texts(cls, value: Any) -> Any:
        """Take the time out of ``{from: TIME}``."""
        if not isinstance(value, dict):
            return value
        texts = {
            name: entry["from"] if isinstance(entry, dict) and entry.keys() == {"from"} else entry
            for name, entry in value.items()
        }
        problems = [
            f"the start of {name} is neither no_backfill nor {{from: TIME}} with an ISO 8601 time"
            for name, text in texts.items()
            if value[name] != NO_BACKFILL and not (isinstance(text, str) and seconds_of(text) is not None)
        ]
        if problems:
            raise ValueError("; ".join(problems))
        return texts

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
    def _check_snapshot(self) -> SnapshotSettings:
        problems = list(self._mode_problems())
        for channel, key in (("file", "signal_file"), ("source", "signal_data_collection")):
            is_open, is_named = channel in self.signal_enabled_channels, getattr(self, key) is not None
            if is_open != is_named:
                problems.append(f"{key} and the channel {channel!r} of signal_enabled_channels need each other")
        if self.signal_data_collection is not None and not is_namespace(self.signal_data_collection):
            problems.append("signal_data_collection is no database.collection")
        for key in ("snapshot_collection_filter_overrides", "starts", "scheduled"):
            problems += key_problems(key, getattr(self, key))
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _mode_problems(self) -> Iterator[str]:
        name = self.snapshot_mode_custom_name
        if (self.snapshot_mode == "custom") != (name is not None):
            yield "snapshot_mode: custom and snapshot_mode_custom_name need each other"
        if self.snapshot_mode != "configuration_based":
            flags = {name: field for name, field in SnapshotSettings.model_fields.items() if name.startswith(_FLAGS)}
            flags_set = [flag for flag, field in flags.items() if getattr(self, flag) != field.default]
            yield from (f"{flag} stands without snapshot_mode: configuration_based" for flag in flags_set)
        # Only if a name is set: entry_points() searches all installed distributions.
        if name is not None and name not in (installed := entry_points(group=_SNAPSHOTTERS).names):
            yield f"no snapshotter {name!r} is installed, {', '.join(sorted(installed)) or 'none'} is"

    @property
    def signal_namespace(self) -> Namespace | None:
        """Signal collection (``signal_data_collection``). None: no source channel."""
        return None if self.signal_data_collection is None else Namespace.parse(self.signal_data_collection)

    def schedule_of(self, collection: str) -> Schedule:
        """Return the schedule of *collection* (``database.collection``). Raises KeyError if it has none."""
        chosen = self.scheduled[collection]
        return Schedule(chosen.every, chosen.key)

    @property
    def chunk_size(self) -> ChunkSize:
        """Maximum size of a snapshot chunk, in documents and bytes. The limit that is reached first applies."""
        pace = self.pace_of(self.snapshot_max_threads)
        documents = self.snapshot_chunk_size if pace is None else min(self.snapshot_chunk_size, pace.chunk_documents)
        return ChunkSize(documents, self.snapshot_chunk_size_in_bytes)

    def pace_of(self, readers: int) -> Pace | None:
        """Return the pace of one of so many readers of a snapshot. None: no limit."""
        limit = self.snapshot_max_documents_per_second
        return Pace(limit / readers) if limit else None

    @cached_property
    def snapshotter(self) -> Snapshotter | None:
        """User's snapshotter of mode ``custom``, created once. None: another mode.

        Raises:
            ConfigurationError: The user's code raised an error.
        """
        if self.snapshot_mode != "custom":
            return None
        with _user_errors(self.snapshot_mode_custom_name):
            (entry_point,) = entry_points(group=_SNAPSHOTTERS, name=self.snapshot_mode_custom_name or "")
            snapshotter: Snapshotter = entry_point.load()()
            return snapshotter

    @property
    def snapshot_policy(self) -> SnapshotPolicy:
        """Snapshot policy of ``snapshot_mode`` at this moment. A custom snapshotter is asked each time.

        Raises:
            ConfigurationError: The user's code of mode ``custom`` raised an error.
        """
        if self.snapshotter is not None:
            with _user_errors(self.snapshot_mode_custom_name):
                return SnapshotPolicy.from_snapshotter(self.snapshotter)
        return SnapshotPolicy.of(
            self.snapshot_mode,
            data=self.snapshot_mode_configuration_based_snapshot_data,
            stream=self.snapshot_mode_configuration_based_start_stream,
            on_data_error=self.snapshot_mode_configuration_based_snapshot_on_data_error,
        )


@contextmanager
def _user_errors(name: str | None) -> Iterator[None]:
    """Turn any error of the block into a ConfigurationError that names the snapshotter's class: it is user code."""
    try:
        yield
    except Exception as error:
        classes = ", ".join(entry_point.value for entry_point in entry_points(group=_SNAPSHOTTERS, name=name or ""))
        raise ConfigurationError(
            f"the snapshotter {name} ({classes}) failed: {type(error).__name__}: {error}",
            next_step="mend it, or set capture.snapshot_mode",
        ) from error
