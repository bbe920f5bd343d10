"""The Java of this machine: why Spark found none that it can use, and the command that mends it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from strandline.errors import ConfigurationError

_INSTALL: Final = {
    "apt-get": "sudo apt-get install -y openjdk-21-jre-headless || sudo apt-get install -y openjdk-17-jre-headless",
    "dnf": "sudo dnf install -y java-21-openjdk-headless",
    "apk": "sudo apk add openjdk17-jre-headless bash",
    "brew": "brew install --cask temurin@21",
}
"""Command that installs a Java, by the program that installs packages. Spark's start script needs bash."""


def without_java() -> ConfigurationError:
    """Return the refusal for a JVM that ended at its start. I/O: looks where Spark's start script looks."""
    what = "Spark's JVM ended as soon as it was started"
    home = os.environ.get("JAVA_HOME")
    if home and not os.access(Path(home) / "bin" / "java", os.X_OK):
        return ConfigurationError(
            f"{what}: JAVA_HOME is {home}, and there is no bin/java",
            next_step="let JAVA_HOME name a JDK 17 or newer, or unset it",
        )
    if not home and shutil.which("java") is None:
        return ConfigurationError(
            f"{what}: JAVA_HOME is not set, and there is no java on the PATH", next_step=install_java()
        )
    return ConfigurationError(
        f"{what}: the Java that it found is older than 17, or refuses an option of spark.conf (its message is above)",
        next_step=f"{install_java()}, or correct spark.conf",
    )


def install_java() -> str:
    """Return the command that installs a Java here. I/O: looks for the program that installs packages."""
    return next((command for program, command in _INSTALL.items() if shutil.which(program)), "install a JDK 17")
