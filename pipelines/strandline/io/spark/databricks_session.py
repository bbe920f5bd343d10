"""A session of Databricks Connect: from a machine outside Databricks to a cluster or to serverless compute."""

from __future__ import annotations

import os

from pyspark.sql import SparkSession

from strandline.errors import ConfigurationError, one_line
from strandline.io.spark.databricks_runtime import runs_on_databricks


def databricks_connect_session() -> SparkSession | None:
    """Return the session that the user's Databricks profile and environment describe.

    None: Databricks Connect is not installed, this process runs on Databricks, or ``SPARK_REMOTE`` names a server.

    I/O: reads the profile; connects to the workspace.

    Raises:
        ConfigurationError: No compute is configured, or the workspace refuses.
    """
    if runs_on_databricks() or os.environ.get("SPARK_REMOTE"):
        return None
    try:
        from databricks.connect import DatabricksSession
    except ModuleNotFoundError:
        return None
    try:
        session: SparkSession = DatabricksSession.builder.getOrCreate()
    except Exception as error:  # the SDK's and gRPC's errors have no common class
        raise ConfigurationError(
            f"Databricks Connect opens no session: {one_line(error)}",
            next_step="databricks auth login, then name the compute:"
            " DATABRICKS_CLUSTER_ID, or DATABRICKS_SERVERLESS_COMPUTE_ID=auto",
        ) from error
    return session
