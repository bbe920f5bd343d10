"""Opener of a lake: it starts Spark only where a job needs it, and opens each context once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from strandline.jobs.lake_context import (
    LakeContext,
    LazyContext,
    PipelineContext,
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
            briefly: True: a JVM that is started uses its first compiler (C1) only, for a process of some seconds.
        """
        self.settings = settings
        self._briefly = briefly
        self._with_spark: JobContext | None = None
        self._lock = threading.Lock()

    def with_spark(self) -> JobContext:
        """Return the context with a Spark session. I/O: starts Spark, or uses the running session."""
        with self._lock:
            if self._with_spark is None:
                from strandline.io.spark.session import SHORT_LIVED  # imports Spark: only jobs that need it wait for it
                from strandline.jobs.context import open_context

                self._with_spark = open_context(self.settings, java_options=SHORT_LIVED if self._briefly else "")
            return self._with_spark

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
