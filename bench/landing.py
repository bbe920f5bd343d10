"""One capture run into an empty lake, measured, and proven to be whole."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

from bench.measure import Marks, Measurement, MemoryWatch
from pipelines.jobs.capture.job import run_capture
from pipelines.jobs.context import JobContext, open_context
from pipelines.model.table_schemas import bronze_table
from pipelines.settings.configuration import Settings

SOURCE = "bench"
ENGINES = ("spark", "native")


@dataclass(frozen=True)
class Landing:
    """What is to land: a database of the server at *uri*, in the folder *root*."""

    uri: str
    database: str
    root: Path

    def context(self, **capture: Any) -> JobContext:
        """I/O: the first one starts the Spark session, later ones join it."""
        settings = Settings(
            source={"name": SOURCE, "uri": self.uri},
            capture={"scope": "database", "target": self.database, **capture},
            lake={"root": str(self.root)},
        )
        return open_context(settings)

    def measured(self, name: str, *, op: str, expected: int, lanes: int, **capture: Any) -> Measurement:
        """I/O: runs ``capture --once`` to its end; then counts, outside the measured time, that each of *expected* landed once.

        Raises:
            RuntimeError: Something is missing, or there twice: the figure would be worth nothing.
        """
        ctx = self.context(**capture)
        marks = Marks()
        ctx.spark.sparkContext._jvm.System.gc()  # what an earlier run has left in the JVM is not this one's
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
