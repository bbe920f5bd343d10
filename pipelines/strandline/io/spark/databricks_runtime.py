"""Question for the Databricks runtime. No Spark: the command line asks it at its start."""

from __future__ import annotations

import os


def runs_on_databricks() -> bool:
    """Return True if this process runs on a machine of Databricks. I/O: reads an environment variable."""
    return "DATABRICKS_RUNTIME_VERSION" in os.environ
