"""Measured capture run into an empty lake, with a check that every document arrived once."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

from bench.measure import Marks, Measurement, MemoryWatch
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext, open_context
from strandline.model.table_schemas import bronze_table
from strandline.settings.configuration import Settings

SOURCE = "bench"
ENGINES = ("spark", "native")


@dataclass(frozen=True)
class Landing:
    """Capture target: a database of the server at *uri*, and the lake folder *root*."""

    uri: str
    database: str
    root: Path

    def context(self, **capture: Any) -> JobContext:
        """Open a job context. The first call starts the Spark session; later calls reuse it."""
        settings = Settings(
            source={"name": SOURCE, "uri": self.uri},
            capture={"scope": "database", "target": self.database, **capture},
            lake={"root": str(self.root)},
        )
        return open_context(settings)

    def measured(self, name: str, *, op: str, expected: int, lanes: int, **capture: Any) -> Measurement:
        """Measure one ``capture --once``. Then check, outside the measured time, that *expected* rows arrived once.

        Raises:
            RuntimeError: Rows are missing or duplicated, so the measurement is invalid.
        """
        ctx = self.context(**capture)
        marks = Marks()
        ctx.spark.sparkContext._jvm.System.gc()  # frees memory of earlier runs, so it is not measured here
        with MemoryWatch() as memory:
            run_capture(ctx, once=True, report=marks)
            seconds = time.perf_counter() - marks.started
        rows = ctx.tables.read(bronze_table(SOURCE)).where(F.col("op") == op)
        identity = "position" if op == "c" else "key"
        counts = rows.select(F.count("*"), F.count_distinct(identity), F.sum(F.length("envelope"))).first()
        if counts is None or (counts[0], counts[1]) != (expected, expected):
            raise RuntimeError(
                f"{name}: {expected} were expected in bronze, counts (all, distinct, bytes) are {counts}"
            )
        stored = sum(file.stat().st_size for file in self.root.rglob("*.parquet"))
        return Measurement(name, expected, counts[2], seconds, marks.steady(lanes), stored, memory.peak)
