"""Facts about Spark: they are gathered here, and judged by `spark_checks`. This module needs PySpark."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Final

import pyspark
from pyspark.sql import SparkSession

from strandline.io.spark.delta_jars import cached_jars, require_delta
from strandline.io.spark.session import SHORT_LIVED, is_local, session_conf
from strandline.io.spark.session_settings import setting
from strandline.jobs.context import JobContext, start_spark
from strandline.jobs.doctor.findings import Notes
from strandline.jobs.doctor.spark_checks import MEMORY, SESSION, delta, memory, version, workers
from strandline.jobs.operations.workers import diagnose_workers
from strandline.settings.configuration import Settings

_GROUP_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def started(notes: Notes, settings: Settings) -> SparkSession | None:
    """Start Spark. None: it does not start; a finding says why."""
    spark = notes.attempt(SESSION, lambda: start_spark(settings, java_options=SHORT_LIVED))
    if spark is not None:
        notes.add(SESSION.ok("started"))
    return spark


def examine_spark(notes: Notes, settings: Settings, spark: SparkSession | None, today: date) -> None:
    """Note what is to be said about Spark.

    I/O: looks for JARs. Starts nothing.

    Args:
        spark: None: it was not started, and the installed version is told.
    """
    master, conf = settings.spark.master, settings.spark.conf
    notes.add(version(pyspark.__version__ if spark is None else spark.version, today))
    jars = cached_jars()
    notes.look(delta, lambda: delta(require_delta(master, conf), [jar.name for jar in jars]))

    def heap() -> str | None:
        return session_conf(master, conf, jars=jars)[MEMORY] if spark is None else setting(spark.conf, MEMORY)

    if is_local(master):
        notes.look(memory, lambda: memory(heap(), machine_bytes()))


def examine_workers(notes: Notes, ctx: JobContext) -> None:
    """Note one finding for each worker. I/O: as `diagnose_workers`."""
    notes.look(workers, lambda: workers(diagnose_workers(ctx)))


def machine_bytes() -> int:
    """Return the memory that this process may use, in bytes: the machine's, or the limit of its container."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in _GROUP_LIMITS:
        with suppress(OSError, ValueError):  # no such file, or "max"
            limits.append(int(Path(file).read_text("utf-8")))
    return min(limits)
