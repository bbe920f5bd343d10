"""Opener of a lake: it starts Spark only where a job needs it, and opens each context once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from strandline.jobs.lake_context import (
    LakeContext,
    LazyContext,
    PipelineContext,
    control_tables_here,
    open_capture_without_spark,
    open_silver_without_spark,
    open_without_spark,
    tables_to_merge,
)

if TYPE_CHECKING:
    from strandline.jobs.context import JobContext
    from strandline.settings.configuration import Settings


class LakeOpener:
    """Opens the lake of some settings for a job."""

    def __init__(self, settings: Settings, *, briefly: bool = False) -> None:
        """Keep the settings. No I/O.

        Args:
            briefly: True: a JVM that is started uses its first compiler (C1) only, for a process of some seconds. While
                the lake has no silver table, the second one compiles what runs for each value.
        """
        self.settings = settings
        self._briefly = briefly
        self._with_spark: JobContext | None = None
        self._lock = threading.Lock()

    def with_spark(self) -> JobContext:
        """Return the context with a Spark session. I/O: starts Spark, or uses the running session."""
        with self._lock:
            if self._with_spark is None:
                from strandline.jobs.context import open_context  # imports Spark: only jobs that need it wait for it

                self._with_spark = open_context(self.settings, java_options=self._java_options())
            return self._with_spark

    def _java_options(self) -> str:
        """Return the options of a JVM that is started. I/O: lists silver tables in a folder of this machine."""
        from strandline.io.spark.session import FIRST_LOAD, SHORT_LIVED

        if not self._briefly:
            return ""
        tables = control_tables_here(self.settings)
        has_own_memory = "spark.driver.memory" in self.settings.spark.conf  # then the young objects may not fit
        return SHORT_LIVED if tables is None or has_own_memory or tables.names("silver") else FIRST_LOAD

    def for_silver(self) -> PipelineContext:
        """Return the context of a silver run. I/O: opens the lake. Spark is started when the run needs it."""
        silver = self.settings.silver
        portable = {silver.compatibility, *silver.compatibility_by_collection.values()} == {"portable"}
        may_merge = portable and self._with_spark is None
        reach = tables_to_merge(self.settings, self.settings.silver_engine) if may_merge else None
        lake = None if reach is None else open_silver_without_spark(self.settings)
        return self.with_spark() if lake is None else LazyContext(self.settings, lake.tables, self.with_spark)

    def for_control(self) -> LakeContext:
        """Return the context of a job that reads bronze and reads or writes control tables. I/O: opens the lake."""
        return self._with_spark or open_without_spark(self.settings) or self.with_spark()

    def for_silver_counts(self) -> LakeContext:
        """Return the context of a job that also counts rows of silver tables. I/O: opens the lake."""
        return self._with_spark or open_silver_without_spark(self.settings) or self.with_spark()

    def for_capture(self) -> LakeContext:
        """Return the context of a writer of bronze. I/O: opens the lake. Its engine may need Spark."""
        return open_capture_without_spark(self.settings) or self.with_spark()
