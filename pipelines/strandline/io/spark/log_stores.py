"""Log stores for Spark: a commit is created and never replaced, in a folder as in S3.

`java/src` holds the classes. Delta's own log store renames a file into place: between its look and its rename another
process may have committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from strandline.errors import ConfigurationError

JAR: Final = Path(__file__).with_name("strandline-log-stores.jar")
S3_LOG_STORE: Final = "io.strandline.S3ConditionalLogStore"
FOLDER_LOG_STORE: Final = "io.strandline.FolderLogStore"
_FOLDER: Final = {"spark.delta.logStore.file.impl": FOLDER_LOG_STORE}
_ONE_FOR_ALL: Final = "spark.delta.logStore.class"


def folder_conf(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a session for lakes in a folder. None if *conf* names one log store for all places."""
    return {} if _ONE_FOR_ALL in conf else _FOLDER | {"spark.jars": str(JAR)}


def require_jar() -> Path:
    """Return the JAR with the log stores.

    Raises:
        ConfigurationError: The package was built without it.
    """
    if not JAR.exists():
        raise ConfigurationError(
            f"{JAR.name} is missing, the log stores that keep two writers apart: strandline was built on a machine"
            " without javac",
            next_step="install a JDK 17 or newer, then install strandline again",
        )
    return JAR
