"""A Spark Connect server of the tests' own: a process with a JVM of its own, on a free loopback port, with Delta."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from shared_jvm import JVM_CONF, SMALL_JVM

from strandline.io.spark.delta_jars import cached_jars
from strandline.io.spark.session import SHORT_LIVED
from strandline.source.mongod import free_ports

ROOT = Path(__file__).parents[2]
_START_SECONDS = 120
_CONF = JVM_CONF | {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.connect.grpc.binding.address": "127.0.0.1",
}
_LOG4J = ROOT / "pipelines/strandline/io/spark/log4j2.properties"
_QUIET = f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"  # plans are long
# Ends the server when its standard input closes, which it does however the test process ends.
_GUARD = """
import os, signal, subprocess, sys
server = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True)
sys.stdin.read()
os.killpg(server.pid, signal.SIGKILL)
server.wait()
"""


@contextmanager
def connect_server(
    log: Path,
    *,
    for_long: bool = False,
    environment: Mapping[str, str] = MappingProxyType({}),
    conf: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[str]:
    """I/O: starts a server, which writes to *log*. Yields its address, for ``SPARK_REMOTE``.

    Args:
        conf: Settings of Spark, beside those of the tests.
        environment: Variables of the server and its workers.
        for_long: Whether it lives long enough for optimized code to pay.
    """
    (port,) = free_ports(1)
    java = f"{_QUIET} {SMALL_JVM if for_long else SHORT_LIVED}"
    settings = {**_CONF, "spark.connect.grpc.binding.port": str(port), "spark.driver.extraJavaOptions": java, **conf}
    submit = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]"]
    submit += [
        "--class",
        "org.apache.spark.sql.connect.service.SparkConnectServer",
        "--jars",
        ",".join(map(str, cached_jars())),
    ]
    submit += [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    env = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **environment}
    with log.open("wb") as said:
        guard = subprocess.Popen(
            [sys.executable, "-c", _GUARD, *submit], stdin=subprocess.PIPE, stdout=said, stderr=said, env=env
        )
    try:
        _wait_for(port, guard, log)
        yield f"sc://127.0.0.1:{port}"
    finally:
        guard.communicate(timeout=60)


def _wait_for(port: int, guard: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and guard.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"no Spark Connect server on port {port}:\n{log.read_text(encoding='utf-8')[-3000:]}")
