"""One JVM for all processes of ``pytest -n``, so that classes are loaded and compiled once.

The process that distributes the tests starts the JVM and keeps it open. Each worker has its own session in it. pyspark
connects to a running JVM if the environment names its gateway, as servers of notebooks do.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

import pytest
from lake_place import store_options
from pyspark import SparkConf, SparkContext  # noqa: TID251  # why: only so does a second process get a session in the JVM of the first
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from strandline.io.spark.session import build_session, keep_values_out_of_the_log

# Tests have a handful of rows. Generating and compiling code for each query took a third of their time.
# What runs `strandline` itself (kills, the demo's own process, notebooks) has it compiled, as users do.
FEW_ROWS: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",  # a plan made anew after each of its stages
    "spark.sql.dataFrameQueryContext.enabled": "false",  # a look at the call stack for each operation of a column
    "spark.sql.ui.explainMode": "simple",  # the default writes every plan twice, for a page that nobody opens
}
# Of the JVM, so not for a session in another one.
JVM_CONF: Final = {
    "spark.driver.memory": "4g",  # of all workers
    "spark.buffer.pageSize": "1m",  # default 64 MB per sort and aggregation: a full collection after every few MERGEs
}
SMALL_JVM: Final = "-XX:+UseSerialGC -Xms3g -Xmn1500m"
# Early optimization does not pay within a quarter of an hour. Code that is never optimized costs more after it.
_OPTIMIZED_LATE: Final = (
    "-XX:ReservedCodeCacheSize=400m -XX:Tier4InvocationThreshold=30000 -XX:Tier4MinInvocationThreshold=8000 "
    "-XX:Tier4CompileThreshold=60000 -XX:Tier4BackEdgeThreshold=200000"
)
_GATEWAY: Final = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")


class SharedJvm:
    """Plugin of the process that hands out the tests; its first worker has the JVM started."""

    def __init__(self) -> None:
        self._session: SparkSession | None = None

    def pytest_configure_node(self, node: Any) -> None:
        late = "" if node.config.getoption("markexpr") == "long" else _OPTIMIZED_LATE
        self._session = self._session or start_session(f"{SMALL_JVM} {late}")
        gateway = self._session.sparkContext._gateway  # why: pyspark has no other way to say where its JVM listens
        node.workerinput["jvm"] = (str(gateway.java_parameters.port), gateway.java_parameters.auth_token)

    def pytest_sessionfinish(self) -> None:
        if self._session is not None:
            self._session.stop()


def start_session(java_options: str = f"{SMALL_JVM} {_OPTIMIZED_LATE}") -> SparkSession:
    """Return a session in a JVM of this process, or in the Spark Connect server that ``SPARK_REMOTE`` names."""
    if "SPARK_REMOTE" in os.environ:
        return build_session("strandline-tests", master=None, conf=FEW_ROWS)
    return build_session(
        "strandline-tests", master="local[2]", conf=FEW_ROWS | JVM_CONF, java_options=java_options, s3=store_options()
    )


def worker_session(config: pytest.Config) -> SparkSession | None:
    """A session in the shared JVM; None in a process that is no worker."""
    gateway = getattr(config, "workerinput", {}).get("jvm")
    if gateway is None:
        return None
    os.environ |= dict(zip(_GATEWAY, gateway, strict=True)) | {"PYSPARK_PYTHON": sys.executable}
    keep_values_out_of_the_log()  # as `build_session` does
    connected = launch_gateway()
    for name in _GATEWAY:
        del os.environ[name]  # what a test starts has a JVM of its own
    jvm = connected.jvm
    theirs = jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession().get()
    java_context = jvm.JavaSparkContext(theirs.sparkContext())
    context = SparkContext(gateway=connected, jsc=java_context, conf=SparkConf(_jconf=java_context.getConf()))
    return SparkSession(context, theirs.newSession())
