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
from strandline.jobs.doctor.catalogue import CHECKS
from strandline.jobs.doctor.findings import Finding, Notes
from strandline.jobs.doctor.source_checks import support
from strandline.jobs.operations.workers import Worker, diagnose_workers
from strandline.model.support_dates import SPARK, end_of_life
from strandline.settings.configuration import Settings

_MEMORY: Final = "spark.driver.memory"
_SIZE: Final = re.compile(r"(\d+)\s*([kmgt]?)b?", re.IGNORECASE)
_UNITS: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_LEAST_BYTES: Final = 1 << 30
_MOST_SHARE: Final = 0.8
_GROUP_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def bytes_of(size: str) -> int | None:
    """Return a size as Spark writes it, such as ``1792m``, in bytes. A number alone is MiB. None: it is no size."""
    found = _SIZE.fullmatch(size.strip())
    return None if found is None else int(found[1]) * _UNITS[found[2].lower() or "m"]


def version(found: str, today: date) -> Finding:
    check = CHECKS["spark.version"]
    if minor_of(found) not in SUPPORTED:
        return check.warning(f"Spark {found} is not among the tested versions ({', '.join(SUPPORTED)})")
    return support(check, "Spark", found, end_of_life(found, SPARK), today)


def delta(package: str | None, jars: list[str]) -> Finding:
    """Return the finding for the JARs of Delta.

    Args:
        package: Maven coordinates of the Delta that fits. None: the platform or the user brings Delta.
        jars: Names of the JARs that are on this machine.
    """
    check = CHECKS["spark.delta"]
    if package is None:
        return check.ok("the platform or spark.conf brings Delta")
    name, number = package.split(":")[1:]
    if any(f"{name}-{number}" in jar for jar in jars):
        return check.ok(f"{name} {number} is on this machine")
    return check.info(f"{package} is fetched at the first start", fix=check.fix)


def memory(size: str | None, machine: int) -> Finding:
    """Return the finding for the memory of the driver.

    Args:
        size: ``spark.driver.memory``. None: the platform decides.
        machine: Memory that this process may use, in bytes.
    """
    check = CHECKS["spark.memory"]
    if size is None:
        return check.ok("the platform decides")
    if (heap := bytes_of(size)) is None:
        return check.warning(f"{_MEMORY} {size!r} is no size")
    text = f"{_MEMORY} is {size}, of {machine / _UNITS['g']:.1f} GiB"
    if heap > machine * _MOST_SHARE:
        return check.warning(text)
    return check.warning(f"{text}: silver fails on large documents") if heap < _LEAST_BYTES else check.ok(text)


def workers(found: list[Worker]) -> list[Finding]:
    """Return one finding for each worker."""
    check = CHECKS["spark.workers"]
    if not found:
        return [check.error("no worker has answered", fix="look at the cluster's own status")]
    return [check.error(str(each)) if each.problems else check.ok(str(each)) for each in found]


def started(notes: Notes, settings: Settings) -> SparkSession | None:
    """Start Spark. None: it does not start; a finding says why."""
    check = CHECKS["spark.session"]
    spark = notes.attempt(check, lambda: start_spark(settings, java_options=SHORT_LIVED))
    if spark is not None:
        notes.add(check.ok("started"))
    return spark


def examine_spark(notes: Notes, settings: Settings, spark: SparkSession | None, today: date) -> None:
    """Note what is to be said about Spark.

    I/O: looks for JARs. Starts nothing.

    Args:
        spark: None: it was not started, and the installed version is told.
    """
    master, conf = settings.spark.master, settings.spark.conf
    found = pyspark.__version__ if spark is None else spark.version
    notes.add(version(found, today))
    jars = cached_jars()
    notes.look(CHECKS["spark.delta"], lambda: delta(require_delta(master, conf), [jar.name for jar in jars]))

    def heap() -> str | None:
        return session_conf(master, conf, jars=jars)[_MEMORY] if spark is None else setting(spark.conf, _MEMORY)

    if is_local(master):
        notes.look(CHECKS["spark.memory"], lambda: memory(heap(), machine_bytes()), severity="warning")


def examine_workers(notes: Notes, ctx: JobContext) -> None:
    """Note one finding for each worker. I/O: as `diagnose_workers`."""
    notes.look(CHECKS["spark.workers"], lambda: workers(diagnose_workers(ctx)))


def machine_bytes() -> int:
    """Return the memory that this process may use, in bytes: the machine's, or the limit of its container."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in _GROUP_LIMITS:
        with suppress(OSError, ValueError):  # no such file, or "max"
            limits.append(int(Path(file).read_text("utf-8")))
    return min(limits)
