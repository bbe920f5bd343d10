"""Real Hadoop servers on loopback: HDFS, and YARN. `scripts/places.sh` fetches their JARs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

import psutil
import pyspark
from processes import wait_until

from strandline.source.mongod import free_ports

_JARS: Final = Path(sys.prefix) / "share" / "strandline" / "hadoop"
_HDFS: Final = "org.apache.hadoop.mapreduce.MiniHadoopClusterManager"
_YARN: Final = "org.apache.hadoop.yarn.server"
_NODES: Final = 2
_PATIENCE: Final = 120


@contextmanager
def hdfs_server(folder: Path) -> Iterator[str]:
    """Start HDFS with its files below *folder*, and end it: one name node and one data node. Yields its URI."""
    details = folder / "details.json"
    arguments = ("-nomr", "-format", "-nnport", "0", "-writeDetails", str(details))
    with _java(folder, "", _HDFS, *arguments) as process:
        _wait(process, folder, lambda: details.exists() and details.stat().st_size > 0)
        yield f"hdfs://localhost:{json.loads(details.read_text())['namenode_port']}"


@contextmanager
def yarn_cluster(folder: Path) -> Iterator[Path]:
    """Start YARN: a resource manager and two node managers, each with memory for one executor.

    Yields the folder with its configuration, for ``HADOOP_CONF_DIR``.
    """
    services = ("", ".scheduler", ".resource-tracker", ".admin", ".webapp")
    ports = free_ports(len(services))
    shared = {
        f"yarn.resourcemanager{name}.address": f"127.0.0.1:{port}" for name, port in zip(services, ports, strict=True)
    } | {
        "yarn.resourcemanager.scheduler.class": f"{_YARN}.resourcemanager.scheduler.fifo.FifoScheduler",
        "yarn.scheduler.minimum-allocation-mb": "128",
    }
    conf = _written(folder / "conf", shared)
    with ExitStack() as running:
        manager = running.enter_context(_java(folder, conf, f"{_YARN}.resourcemanager.ResourceManager"))
        for number in range(_NODES):
            own = folder / f"node-{number}"
            node = _written(own / "conf", shared | _node(own))
            running.enter_context(_java(own, node, f"{_YARN}.nodemanager.NodeManager"))
        _wait(manager, folder, lambda: (folder / "log").read_text().count("registered with capability") == _NODES)
        yield conf


def _node(folder: Path) -> dict[str, str]:
    services = ("", ".localizer", ".webapp", ".collector-service")
    ports = free_ports(len(services))
    return {
        f"yarn.nodemanager{name}.address": f"127.0.0.1:{port}" for name, port in zip(services, ports, strict=True)
    } | {
        "yarn.nodemanager.local-dirs": str(folder / "local"),
        "yarn.nodemanager.log-dirs": str(folder / "logs"),
        "yarn.nodemanager.resource.memory-mb": "2048",
        "yarn.nodemanager.vmem-check-enabled": "false",
        "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
    }


def _written(folder: Path, properties: dict[str, str]) -> Path:
    folder.mkdir(parents=True)
    lines = [
        f"<property><name>{name}</name><value>{escape(value)}</value></property>" for name, value in properties.items()
    ]
    (folder / "yarn-site.xml").write_text("\n".join(["<configuration>", *lines, "</configuration>"]), encoding="utf-8")
    return folder


@contextmanager
def _java(folder: Path, conf: Path | str, main: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a class with its output in *folder*, and end it with all processes that it has started."""
    assert _JARS.is_dir(), "Hadoop is not there: make places fetches it"
    spark = Path(pyspark.__file__).parent / "jars"
    log4j = folder / "log4j2.properties"
    log4j.write_text(
        "rootLogger.level=info\nrootLogger.appenderRef.c.ref=c\nappender.c.type=Console\nappender.c.name=c\n"
    )
    command = ["java", "-Xmx512m", f"-Dlog4j2.configurationFile={log4j}", "-cp", f"{conf}:{_JARS}/*:{spark}/*", main]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([*command, *arguments], cwd=folder, stdin=subprocess.PIPE, stdout=log, stderr=log)
    try:
        yield process
    finally:
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    child.kill()
        process.kill()
        process.communicate()


def _wait(process: subprocess.Popen[bytes], folder: Path, ready: Callable[[], bool]) -> None:
    log = folder / "log"

    def is_ready() -> bool:
        assert process.poll() is None, log.read_text(errors="replace")[-4000:]
        return ready()

    wait_until(is_ready, f"not ready: {log}", seconds=_PATIENCE)
