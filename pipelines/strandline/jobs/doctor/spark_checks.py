"""Checks of Spark: version, Delta's JARs, memory. Pure, and without PySpark, which need not be installed."""

from __future__ import annotations

import re
from datetime import date
from typing import TYPE_CHECKING, Final

from strandline.io.spark.spark_versions import SUPPORTED, minor_of
from strandline.jobs.doctor.findings import Check, Finding, doctor_check
from strandline.jobs.doctor.source_checks import support
from strandline.model.support_dates import SPARK, end_of_life

if TYPE_CHECKING:
    from strandline.jobs.operations.workers import Worker

SESSION: Final = Check(
    "spark.session",
    "A Spark session can be started",
    why="gold, checks and some changes of silver need it",
    fix="install a JDK 17 or newer and let JAVA_HOME name it",
)
MEMORY: Final = "spark.driver.memory"
_SIZE: Final = re.compile(r"(\d+)\s*([kmgt]?)b?", re.IGNORECASE)
_UNITS: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_LEAST_BYTES: Final = 1 << 30
_MOST_SHARE: Final = 0.8


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
        return check.warning(f"{MEMORY} {size!r} is no size")
    text = f"{MEMORY} is {size}, of {machine / _UNITS['g']:.1f} GiB"
    if heap > machine * _MOST_SHARE:
        return check.warning(text)
    return check.warning(f"{text}: silver fails on large documents") if heap < _LEAST_BYTES else check.ok(text)


@doctor_check(
    "spark.workers",
    "Each worker of a cluster: packages, TLS files, MongoDB, clock (`--workers`)",
    why="workers read snapshots and parse large batches",
    fix="correct the problem on that worker",
)
def workers(check: Check, reports: list[Worker]) -> list[Finding]:
    if not reports:
        return [check.error("no worker has answered", fix="look at the cluster's own status")]
    return [check.error(str(worker)) if worker.problems else check.ok(str(worker)) for worker in reports]
