"""A Spark stream that continues a bronze table of Strandline."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from strandline.bronze.offsets import Committed
from strandline.bronze.spark_engine import SparkEngine
from strandline.bronze.writer import BronzeWriter
from strandline.control.sources import state_of
from strandline.errors import ConfigurationError
from strandline.io.tables.filesystem_check import as_spark_sees_it
from strandline.io.tables.format_check import refuse_other_lake
from strandline.io.tables.log_store_check import refuse_unfenced
from strandline.io.tables.spark_tables import Tables
from strandline.jobs.capture.filter_changes import filters_to_json
from strandline.jobs.selection import stream_identity
from strandline.jobs.spark_source.opened_source import START, OpenedSource, check_stream_settings, settings_of
from strandline.jobs.spark_source.stream_position import Position
from strandline.model.timestamps import clock_us

_CAPTURE = "strandline capture --once"


@dataclass(frozen=True)
class BronzeTarget:
    """A bronze table, and the options of the stream that continues it."""

    table: str
    """Quoted name for Spark SQL."""
    path: str | None
    """Path of the table. None: the lake is in a catalog."""
    options: dict[str, str] = field(repr=False)
    """Options of the reader. They may hold the connection string."""

    def start(self, writer: DataStreamWriter) -> StreamingQuery:
        """Start a query of the stream into the table. I/O."""
        return writer.toTable(self.table) if self.path is None else writer.format("delta").start(self.path)


def open_bronze(spark: SparkSession, options: Mapping[str, str]) -> BronzeTarget:
    """Return the bronze table of a source, and the options of the stream that continues it.

    I/O: reads the source and bronze; creates the table if it is missing.

    Args:
        options: Settings by name, as the reader takes them.

    Raises:
        ConfigurationError: The table belongs to another source; a capture has to run first; or a setting asks for what
            a stream of Spark cannot do.
    """
    settings = settings_of(options)
    check_stream_settings(settings.capture)
    lake = as_spark_sees_it(spark, settings.lake_location)
    refuse_unfenced(spark, lake)
    tables, name = Tables(spark, lake), settings.source.name
    opening = partial(SparkEngine.open, tables)
    writer = BronzeWriter(tables, name, "spark", clock_us, open_engine=opening)
    refuse_other_lake(tables, writer.table)
    if (state := state_of(tables, name).state) != "running":
        raise ConfigurationError(f"source {name} is {state}", next_step="strandline start")
    with closing(OpenedSource.open(settings, writer.writer)) as source:
        filters, identity = filters_to_json(source.selection), source.deployment.identity
        last = writer.open(identity, stream_identity(settings.capture), filters, settings.capture.update_kind)
        passes_all = source.selection.user_pipeline.passes_all
    _check(last, passes_all=passes_all, filters_changed=writer.filters != filters)
    start = Position() if last is None else Position(last.batch, last.epoch, last.resume_token, last.last_event)
    path = lake.path(writer.table) if lake.by_path else None
    return BronzeTarget(lake.sql(writer.table), path, {**options, START: json.dumps(start.to_json())})


def _check(last: Committed | None, *, passes_all: bool, filters_changed: bool) -> None:
    """Raise ConfigurationError if only a capture can continue bronze. Pure."""
    if last is not None and last.resume_token is None:
        problem = "the offset was reset"
    elif last is not None and last.snapshot_id is not None:
        problem = "a snapshot is not finished"
    elif filters_changed:
        problem = "the filters differ from those of the last capture"
    elif not passes_all:
        problem = "capture.cursor_pipeline may leave out events, which only a capture records as a gap"
    else:
        return
    raise ConfigurationError(f"a stream of Spark cannot continue bronze: {problem}", next_step=_CAPTURE)
