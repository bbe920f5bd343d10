"""The streaming reader of the Spark data source. Spark 4.2 and newer: only these tell a reader where a batch starts."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from strandline.jobs.spark_source.opened_source import START, OpenedSource, check_stream_settings, settings_of
from strandline.jobs.spark_source.source_stream import SourceStream
from strandline.jobs.spark_source.stream_position import Position


class BronzeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Batches of the change stream for Spark. Spark pickles it, and calls everything but `read` on its driver."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)
        self._source_stream: SourceStream | None = None

    @property
    def _stream(self) -> SourceStream:
        if self._source_stream is None:
            settings = settings_of(self._options)
            check_stream_settings(settings.capture)
            bronze = self._start if START in self._options else None
            self._source_stream = SourceStream(OpenedSource.open(settings, uuid.uuid4().hex), bronze)
        return self._source_stream

    @property
    def _start(self) -> Position:
        return Position.from_json(json.loads(self._options[START])) if START in self._options else Position()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # why: Spark's name
        return self._start.to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802, ARG002  # why: Spark's names; capture.max_batch_size limits a batch
        return self._stream.latest(Position.from_json(start)).to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # why: Spark's name
        self._stream.end_at_present()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        readers = self._stream.readers(Position.from_json(start), Position.from_json(end))
        return [InputPartition(reader) for reader in readers]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from partition.value()

    def stop(self) -> None:
        if self._source_stream is not None:
            self._source_stream.close()
