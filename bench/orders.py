"""Silver table of orders of any size, with changes to some of its rows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, get_args

import bson
from bson import ObjectId
from bson.timestamp import Timestamp
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from strandline.bronze.writer import BronzeWriter
from strandline.io.tables.increments import rows_appended
from strandline.io.tables.spark_tables import Tables
from strandline.jobs.context import JobContext
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.position import snapshot_position
from strandline.model.shape import Compatibility
from strandline.model.table_schemas import CHANGE_OPS, bronze_table
from strandline.model.tables import TableName
from strandline.settings.configuration import Settings

Where = Literal["recent", "scattered"]
WHERE: Final[tuple[Where, ...]] = get_args(Where)

ORDERS = TableName("silver", "shop__orders")
_SOURCE, _START = "bench", 1_700_000_000
_ROWS_OF_A_FILE = 250_000


def document(number: int, revision: int = 0) -> dict[str, Any]:
    """Return an order of about 200 bytes. Its `_id` increases with the number, as driver ids do with time."""
    return {
        "_id": ObjectId(f"{_START + number:08x}{number:016x}"),
        "number": number,
        "customer": f"customer {number % 100_000:06d}",
        "amount": number * 0.25,
        "revision": revision,
        "placed": datetime.fromtimestamp(_START + number, UTC),
        "note": f"{number:064x}",
    }


def chosen(rows: int, changed: int, where: Where, turn: int = 0) -> Sequence[int]:
    """Return the numbers of *changed* of *rows* orders: the newest, or scattered. Each *turn* scatters differently."""
    if where == "recent":
        return range(rows - changed, rows)
    step = rows // changed
    return range(turn % step, step * changed, step)


@dataclass
class Orders:
    """Lake with *rows* orders, and a bronze stream that changes them."""

    ctx: JobContext
    rows: int
    batch: int = 0
    """Number of the last bronze batch, also used as revision of the orders changed in it."""
    _writer: BronzeWriter | None = None

    @property
    def folder(self) -> Path:
        return Path(self.ctx.tables.lake.path(ORDERS))

    @staticmethod
    def built(
        spark: SparkSession,
        root: Path,
        rows: int,
        *,
        compatibility: Compatibility = "portable",
        engine: Literal["auto", "spark"] = "auto",
    ) -> Orders:
        """Create a lake. A real run creates the table with one order; the others are appended.

        Their files are sorted by key, as after ``strandline maintain``.
        """
        silver = {"compatibility": compatibility, "engine": engine}
        lake, capture = {"root": str(root)}, {"scope": "deployment"}
        settings = Settings(source={"name": _SOURCE}, capture=capture, lake=lake, silver=silver)
        orders = Orders(JobContext(settings, spark, Tables(spark, settings.lake_location)), rows)
        orders.change([0], "insert")
        run_silver(orders.ctx)
        if rows > 1:
            orders.ctx.tables.append(ORDERS, orders.others())
        return orders

    @property
    def writer(self) -> BronzeWriter:
        """The bronze writer, opened at the first use."""
        if self._writer is None:
            lake = self.ctx.for_capture()
            self._writer = BronzeWriter(
                lake.tables, _SOURCE, "bench", lambda: time.time_ns() // 1000, open_engine=lake.open_engine
            )
            self._writer.open("bench", None)
        return self._writer

    def change(self, numbers: Sequence[int], operation: Literal["insert", "replace"] = "replace") -> None:
        """Commit one bronze batch with the real writer: one change for each order in *numbers*."""
        self.batch += 1
        events = [self._event(number, place, operation) for place, number in enumerate(numbers)]
        token = f'{{"_data": "82{self.batch:08X}FF"}}'
        self.writer.commit(
            events, batch=self.batch, resume_token=token, snapshot_id=None, ends_outside_transaction=True
        )

    def newest_batch(self) -> DataFrame:
        """Return the bronze rows of the newest commit."""
        bronze = bronze_table(_SOURCE)
        newest = self.ctx.tables.version(bronze)
        return rows_appended(self.ctx.tables, bronze, newest, newest).where(F.col("op").isin(*CHANGE_OPS))

    def _event(self, number: int, place: int, operation: str) -> bytes:
        changed = document(number, self.batch)
        return bson.encode(
            {
                "_id": {"_data": f"82{self.batch:08X}{place:08X}"},
                "operationType": operation,
                "clusterTime": Timestamp(_START + self.batch, place),
                "ns": {"db": "shop", "coll": "orders"},
                "documentKey": {"_id": changed["_id"]},
                "fullDocument": changed,
            }
        )

    def others(self) -> DataFrame:
        """Return orders 1 to *rows* - 1 as rows of a snapshot. Documents are random bytes of realistic length."""
        number = F.col("id")
        identifier = F.format_string("%08x%016x", number + _START, number)
        values: dict[str, Column] = {
            "_id": identifier,
            "number": number,
            "customer": F.format_string("customer %06d", number % 100_000),
            "amount": number * 0.25,
            "revision": F.lit(0),
            "placed": F.timestamp_seconds(number + _START),
            "note": F.format_string("%064x", number),
            "_key": F.format_string('{"$oid": "%s"}', identifier),
            "_position": F.lit(snapshot_position(1, 1)),
            "_base_position": F.lit(snapshot_position(1, 1)),
            "_op": F.lit("r"),
            "_deleted": F.lit(False),
            "_cluster_time": F.timestamp_seconds(F.lit(1)),
            "_bronze_version": F.lit(1),
            "_exact": F.lit(True),
            "_document": F.concat(*(F.unhex(F.sha2(F.concat_ws(":", number, F.lit(part)), 512)) for part in range(3))),
        }
        wanted = self.ctx.tables.read(ORDERS).schema.fields
        columns = [values.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in wanted]
        return self.ctx.spark.range(1, self.rows, 1, -(-self.rows // _ROWS_OF_A_FILE)).select(*columns)
