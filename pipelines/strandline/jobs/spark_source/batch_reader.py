"""The batch reader of the Spark data source: all captured collections at one cluster time."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from strandline.jobs.spark_source.opened_source import OpenedSource, settings_of
from strandline.jobs.spark_source.snapshot_rows import control_reader, snapshot_rows


class BronzeReader(DataSourceReader):
    """Rows of a snapshot for Spark. Spark pickles it, and calls `partitions` on its driver."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)

    def partitions(self) -> list[InputPartition]:
        writer = uuid.uuid4().hex
        with closing(OpenedSource.open(settings_of(self._options), writer)) as source:
            control, readers = snapshot_rows(source, uuid.uuid4().hex, may_read_later=False)
        return [InputPartition(reader) for reader in (control_reader(control), *readers)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from partition.value()
