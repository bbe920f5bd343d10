"""Settings and connections of the Spark data source."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from strandline.bronze.envelope import Stamp
from strandline.errors import ConfigurationError
from strandline.jobs.capture.oversize_events import check_oversize
from strandline.jobs.selection import checked_selection
from strandline.jobs.source_connection import capture_oplog, connection_options, retry_policy, stream_reader
from strandline.model.timestamps import clock_us
from strandline.settings import DEFAULT_CONF
from strandline.settings.capture import CaptureSettings
from strandline.settings.configuration import Settings, load_settings
from strandline.settings.overrides import overrides_of
from strandline.source.change_stream import StreamReader
from strandline.source.client import AnyClient, ConnectionOptions, close_client, open_client
from strandline.source.deployment import Deployment, inspect_deployment
from strandline.source.oplog import Oplog
from strandline.source.resume import ResumePoint
from strandline.source.stages import Selection

TARGET: Final = "target"
CONF: Final = "conf"
START: Final = "start"
_OWN: Final = (TARGET, CONF, START)
"""Options that are no settings."""


def settings_of(options: Mapping[str, str]) -> Settings:
    """Return the settings that the options of a reader name. Files and environment count, too.

    I/O: reads files and environment of the process that plans the query, which is Spark's driver.

    Raises:
        ConfigurationError: An option is no setting, or as `load_settings`.
    """
    assignments = (f"{key}={value}" for key, value in options.items() if key not in _OWN)
    conf = Path(options.get(CONF, str(DEFAULT_CONF)))
    return load_settings(options.get(TARGET, "local"), conf, overrides_of(assignments, Settings, "option"))


def check_stream_settings(settings: CaptureSettings) -> None:
    """Raise ConfigurationError if a setting asks for what a stream of Spark cannot do. Pure."""
    if settings.snapshot_mode not in ("initial", "no_data"):
        raise ConfigurationError(
            f"a stream of Spark takes its snapshot in the first batch only: not capture.snapshot_mode "
            f"{settings.snapshot_mode}",
            next_step="set it to initial or no_data, or use strandline capture",
        )
    if settings.starts:
        raise ConfigurationError(
            "a stream of Spark cannot record a gap: not capture.starts",
            next_step="leave it out, or use strandline capture",
        )
    if settings.on_history_lost != "fail":
        raise ConfigurationError(
            f"a stream of Spark cannot record a gap: not capture.on_history_lost {settings.on_history_lost}",
            next_step="leave it out, or use strandline capture",
        )


@dataclass(frozen=True)
class OpenedSource:
    """An open source. Must be closed."""

    client: AnyClient
    """Client, opened with ``raw=True``."""
    options: ConnectionOptions
    selection: Selection
    deployment: Deployment
    whole: Settings
    """All settings."""
    writer: str
    """Id of this run. It is stored in every row."""

    @staticmethod
    def open(settings: Settings, writer: str) -> OpenedSource:
        """Connect to the source and check the settings against it.

        I/O: reads the source.

        Raises:
            ConfigurationError: The source does not fit the settings.
            RetriableError: The source does not answer.
        """
        options = connection_options(settings)
        with closing(open_client(options)) as looking:
            deployment = inspect_deployment(looking, options.uri)
            check_oversize(settings.capture, deployment)
            selection = checked_selection(settings.capture, looking, deployment).selection
        return OpenedSource(open_client(options, raw=True), options, selection, deployment, settings, writer)

    @property
    def settings(self) -> CaptureSettings:
        return self.whole.capture

    @property
    def oplog(self) -> Oplog:
        return capture_oplog(self.client, self.selection, self.settings, self.deployment)

    @property
    def stored_json(self) -> bool:
        return self.settings.json_columns == "stored"

    def stamp(self) -> Stamp:
        """Return the values of all rows that are read now. I/O: reads the clock."""
        return Stamp(self.whole.source.name, self.writer, clock_us())

    def reader(self, start: ResumePoint) -> StreamReader:
        """Return the reader of the change stream from *start* on. No I/O."""
        return stream_reader(
            self.client,
            self.selection,
            self.settings,
            self.deployment,
            start,
            policy=retry_policy(self.settings),
            show_keys=self.whole.logging.show_keys,
        )

    def close(self) -> None:
        close_client(self.client)
