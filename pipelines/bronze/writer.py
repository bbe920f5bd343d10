"""The bronze writer: one Delta commit holds the events of a batch and the token that ends them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from pipelines.bronze.envelope import BatchEnd, Stamp
from pipelines.bronze.offsets import Committed, committed
from pipelines.bronze.stream_rows import stream_rows
from pipelines.errors import ConfigurationError, FencedError
from pipelines.io.tables import Tables, schema_of
from pipelines.model.columns import BRONZE_DDL, bronze_table
from pipelines.model.tables import TableName

PROPERTIES = {
    "delta.appendOnly": "true",
    "delta.enableChangeDataFeed": "true",
    # Statistics on the long columns (token, envelope) cost more than they prune.
    "delta.dataSkippingStatsColumns": "batch,position,op,db,collection,snapshot_id",
    "delta.checkpointInterval": "100",
}
_SOURCE, _IDENTITY, _GENERATION = "strandline.source", "strandline.cluster", "strandline.generation"


@dataclass(frozen=True)
class BronzeWriter:
    """Appends to ``bronze.<source>`` as the one writer of a source.

    Args:
        writer: Names this run; stands in every row.
        clock_us: Microseconds since the epoch, UTC.
        stored_json: Fill the JSON columns at capture.
    """

    tables: Tables
    source: str
    writer: str
    clock_us: Callable[[], int]
    stored_json: bool = False

    @property
    def table(self) -> TableName:
        return bronze_table(self.source)

    def stamp(self) -> Stamp:
        return Stamp(self.source, self.writer, self.clock_us())

    def open(self, identity: str) -> Committed | None:
        """I/O: creates the table if it is not there; returns where the last run ended (None: there was none). Idempotent.

        Args:
            identity: Which MongoDB deployment this is.

        Raises:
            ConfigurationError: The table belongs to another source.
        """
        properties = PROPERTIES | {_SOURCE: self.source, _IDENTITY: identity, _GENERATION: "1"}
        schema = schema_of(BRONZE_DDL)
        self.tables.create(self.table, schema, properties=properties, cluster_by=("collection", "position"))
        found = self.tables.properties(self.table)
        if found.get(_SOURCE) != self.source or found.get(_IDENTITY) != identity:
            raise ConfigurationError(
                f"{self.table} holds changes of another MongoDB deployment ({found.get(_IDENTITY)}, this is {identity})",
                next_step="name this source otherwise (source.name), or choose another lake.root",
            )
        return committed(self.tables, self.table)

    def app_id(self, *parts: object) -> str:
        """The application transaction id of the stream, or of a part of a snapshot."""
        return ":".join(["strandline", self.source, "1", *map(str, parts)])

    def commit(self, events: Sequence[bytes], *, batch: int, resume_token: str, snapshot_id: str | None) -> None:
        """I/O: one commit of *events* with the token after them; no events: a heartbeat row. Exactly once by (source, *batch*).

        Raises:
            FencedError: Another writer committed this batch.

        Effects on failure:
            Either the whole batch is there or nothing; the next run goes on from what is there. Calling again is safe.
        """
        end = BatchEnd(resume_token, snapshot_id)
        rows = stream_rows(self.tables.spark, events, self.stamp(), batch=batch, end=end, stored_json=self.stored_json)
        self.append_once(rows, app_id=self.app_id(), sequence=batch, what=f"batch {batch}")

    def append_once(self, rows: DataFrame, *, app_id: str, sequence: int, what: str) -> int:
        """I/O: one fenced commit of *rows*, proven. Returns how many rows the commit holds.

        Raises:
            FencedError: Another writer committed this sequence.
        """
        landed = self.tables.append_once(self.table, rows, app_id=app_id, sequence=sequence, proof=f"{self.writer}:{app_id}:{sequence}")
        if landed is None:
            raise FencedError(
                f"another writer committed {what} of source {self.source}; this one stops, nothing is lost",
                next_step="run one capture per source; strandline status shows the writer",
            )
        return landed

    def frame(self, rows: pa.Table) -> DataFrame:
        return self.tables.spark.createDataFrame(rows, schema=schema_of(BRONZE_DDL))
