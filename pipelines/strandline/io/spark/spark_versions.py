"""Versions of Spark that Strandline supports, and the packages that belong to each."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from strandline.errors import ConfigurationError

_log = logging.getLogger("strandline.session")
_SCALA: Final = "2.13"
_MINOR: Final = re.compile(r"(\d+)\.(\d+)")
OLDEST: Final = (4, 0)
"""Spark 3.5 has no VARIANT, and its Python API lacks what Strandline calls. The decision is record 53."""


@dataclass(frozen=True)
class SparkPackages:
    """Versions that belong to one minor version of Spark."""

    delta: str
    hadoop: str


SUPPORTED: Final[Mapping[str, SparkPackages]] = MappingProxyType({
    "4.0": SparkPackages(delta="4.4.0", hadoop="3.4.1"),
    "4.1": SparkPackages(delta="4.4.0", hadoop="3.4.2"),
    "4.2": SparkPackages(delta="4.4.0", hadoop="3.5.0"),
})  # fmt: skip
"""A new minor version of Spark gets a line here once Delta is published for it. `make test-spark` proves each line."""

SDK_OF_HADOOP: Final[Mapping[str, str]] = MappingProxyType({"3.4.2": "2.29.52", "3.5.0": "2.35.4"})
"""The AWS SDK that each Hadoop's own POM names."""
HADOOP_WITHOUT_CONDITIONAL_PUT: Final = ("3.4.0", "3.4.1")
"""Conditional PUT came with Hadoop 3.4.2 (HADOOP-19256)."""


def minor_of(version: str) -> str:
    """Return ``4.2`` of ``4.2.1``. Other text is returned as it is."""
    match = _MINOR.match(version)
    return match[0] if match else version


def is_too_old(version: str) -> bool:
    """Return True if *version* is older than `OLDEST`. False if it is no version."""
    match = _MINOR.match(version)
    return match is not None and (int(match[1]), int(match[2])) < OLDEST


def refuse_old_spark(version: str) -> None:
    """Refuse a Spark older than `OLDEST`.

    Raises:
        ConfigurationError: It is older.
    """
    if is_too_old(version):
        raise old_spark(version)


def old_spark(version: str) -> ConfigurationError:
    """Return the refusal of a Spark older than `OLDEST`."""
    return ConfigurationError(
        f"Spark {version} is too old: it has no type VARIANT, and Strandline needs Spark 4.0 or newer",
        next_step="use Spark 4.0, 4.1 or 4.2; on Databricks, runtime 17.3 LTS or newer"
        " (strandline explain spark-versions)",
    )


def delta_package(version: str) -> str:
    """Return the Maven coordinates of the Delta that belongs to a Spark.

    Raises:
        ConfigurationError: Strandline knows no Delta for that version of Spark.
    """
    refuse_old_spark(version)
    minor = minor_of(version)
    if minor not in SUPPORTED:
        raise ConfigurationError(
            f"no Delta is known for Spark {version} (supported: {', '.join(SUPPORTED)})",
            next_step="pip install 'pyspark>=4.0.1,<4.3', or name a Delta for it in spark.jars.packages of spark.conf",
        )
    return f"io.delta:delta-spark_{minor}_{_SCALA}:{SUPPORTED[minor].delta}"


def packages_folder(version: str) -> str:
    """Return the folder name of a Spark's JARs. After an upgrade of Spark or Delta it is another one."""
    supported = SUPPORTED.get(minor_of(version))
    return f"spark-{version}" + (f"-delta-{supported.delta}" if supported else "")


def refuse_native_tables(version: str) -> None:
    """Refuse silver tables with VARIANT and deletion vectors on a Spark that cannot read them.

    Raises:
        ConfigurationError: It is Spark 4.0, whose reader cannot copy a row with VARIANT (``Not implemented``).
    """
    if minor_of(version) == "4.0":
        raise ConfigurationError(
            f"Spark {version} cannot read a native silver table: it has VARIANT and deletion vectors",
            next_step="use Spark 4.1 or newer; or set silver.compatibility: portable, and run strandline rebuild with "
            "Spark 4.1 or newer if the table exists",
        )


def check_version(version: str) -> None:
    """Check the version of a running Spark. A platform's newer Spark brings its own Delta, and is only logged.

    Raises:
        ConfigurationError: It is older than `OLDEST`.
    """
    refuse_old_spark(version)
    if minor_of(version) not in SUPPORTED:
        _log.warning("Spark %s is newer than the tested versions (%s)", version, ", ".join(SUPPORTED))
