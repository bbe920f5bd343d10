"""JARs of Delta for the installed Spark: chosen by its version, kept in the virtual environment."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyspark

from strandline.io.spark.spark_versions import delta_package, packages_folder

# Spark itself ships the rest of what Delta depends on; a second copy on the class path would only shadow it.
_NEEDED_JARS: Final = ("io.delta_", "io.unitycatalog_", "org.locationtech.jts_")

JAR_SETTINGS: Final = ("spark.jars", "spark.jars.packages")


def ivy_home() -> Path:
    """Return the folder of the virtual environment in which Ivy keeps the JARs of this Spark and its Delta."""
    return Path(sys.prefix) / "share" / "strandline" / "ivy" / packages_folder(pyspark.__version__)


def cached_jars() -> list[Path]:
    """Return the JARs that an earlier session fetched. Empty before the first session."""
    jars = [jar for jar in sorted((ivy_home() / "jars").glob("*.jar")) if jar.name.startswith(_NEEDED_JARS)]
    return jars if any("delta-spark" in jar.name for jar in jars) else []


def require_delta(master: str | None, conf: Mapping[str, str]) -> str | None:
    """Return the package of Delta for the installed Spark. None: the platform or *conf* brings Delta.

    Raises:
        ConfigurationError: As `delta_package`.
    """
    own = master is None or any("delta-spark" in conf.get(key, "") for key in JAR_SETTINGS)
    return None if own else delta_package(pyspark.__version__)
