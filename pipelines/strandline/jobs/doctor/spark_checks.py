"""Checks of Spark: version, Delta's JARs, memory. The checks are pure; `examine_spark` gathers their facts."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Final

import pyspark
from pyspark.sql import SparkSession

from strandline.io.spark.delta_jars import cached_jars, require_delta
from strandline.io.spark.session import SHORT_LIVED, is_local, session_conf
from strandline.io.spark.session_settings import setting
from strandline.io.spark.spark_versions import SUPPORTED, minor_of
from strandline.jobs.context import JobContext, start_spark
from strandline.jobs.doctor.findings import Check, Finding, Notes, doctor_check
from strandline.jobs.doctor.source_checks import support
from strandline.jobs.operations.workers import Worker, diagnose_workers
from strandline.model.support_dates import SPARK, end_of_life
from strandline.settings.configuration import Settings

SESSION: Final = Check(
    "spark.session",
    "A Spark session can be started",
    why="silver and gold need it",
    fix="install a JDK 17 or newer and let JAVA_HOME name it",
)
_MEMORY: Final = "spark.driver.memory"
_SIZE: Final = re.compile(r"(\d+)\s*([kmgt]?)b?", re.IGNORECASE)
_UNITS: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_LEAST_BYTES: Final = 1 << 30
_MOST_SHARE: Final = 0.8
_GROUP_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def bytes_of(size: str) -> int | None:
    """Return a size as Spark writes it, such as ``1792m``, in bytes. A number alone is MiB. None: it is no size."""
    match = _SIZE.fullmatch(size.strip())
    return None if match is None else int(match[1]) * _UNITS[match[2].lower() or "m"]


@doctor_check(
    "spark.version",
    "Version of Spark, and its end of life",
    why="a release after its end of life gets no fixes",
    fix="use Spark 4.1 or 4.2 (strandline explain spark-versions)",
)
def version(check: Check, release: str, today: date) -> Finding:
    if minor_of(release) not in SUPPORTED:
        return check.warning(f"Spark {release} is not among the tested versions ({', '.join(SUPPORTED)})")
    return support(check, "Spark", release, end_of_life(release, SPARK), today)


@doctor_check(
    "spark.delta",
    "JARs of Delta for this Spark",
    why="the first start fetches them, and needs the network for it",
    fix="start once where there is a network, or install Delta with the image",
)
def delta(check: Check, package: str | None, jars: list[str]) -> Finding:
    """Return the finding for the JARs of Delta.

    Args:
        package: Maven coordinates of the Delta that fits. None: the platform or the user brings Delta.
        jars: Names of the JARs that are on this machine.
    """
    if package is None:
        return check.ok("the platform or spark.conf brings Delta")
    name, number = package.split(":")[1:]
    if any(f"{name}-{number}" in jar for jar in jars):
        return check.ok(f"{name} {number} is on this machine")
    return check.info(f"{package} is fetched at the first start", fix=check.fix)


@doctor_check(
    "spark.memory",
    "Memory of the driver against this machine's",
    why="the system ends a process that takes more memory than there is",
    fix="set spark.driver.memory in spark.conf",
    unknown="warning",
)
def memory(check: Check, size: str | None, machine: int) -> Finding:
    """Return the finding for the memory of the driver.

    Args:
        size: ``spark.driver.memory``. None: the platform decides.
        machine: Memory that this process may use, in bytes.
    """
    if size is None:
        return check.ok("the platform decides")
    if (heap := bytes_of(size)) is None:
        return check.warning(f"{_MEMORY} {size!r} is no size")
    text = f"{_MEMORY} is {size}, of {machine / _UNITS['g']:.1f} GiB"
    if heap > machine * _MOST_SHARE:
        return check.warning(text)
    return check.warning(f"{text}: silver fails on large documents") if heap < _LEAST_BYTES else check.ok(text)


@doctor_check(
    "spark.workers",
    "Each worker of a cluster: packages, TLS files, MongoDB, clock (`--workers`)",
    why="workers read snapshots and parse large batches",
    fix="correct the problem on that worker, then run strandline doctor --workers",
)
def workers(check: Check, reports: list[Worker]) -> list[Finding]:
    if not reports:
        return [check.error("no worker has answered", fix="look at the cluster's own status")]
    return [check.error(str(worker)) if worker.problems else check.ok(str(worker)) for worker in reports]


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
        return session_conf(master, conf, jars=jars)[_MEMORY] if spark is None else setting(spark.conf, _MEMORY)

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
