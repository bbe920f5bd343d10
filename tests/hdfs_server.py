"""A real HDFS on loopback: one name node and one data node in a JVM. `scripts/places.sh` fetches its JARs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark

_JARS: Final = Path(sys.prefix) / "share" / "strandline" / "hadoop"
_CLUSTER: Final = "org.apache.hadoop.mapreduce.MiniHadoopClusterManager"


@contextmanager
def hdfs_server(folder: Path) -> Iterator[str]:
    """Start HDFS with its files below *folder*, and end it. Yields its URI."""
    assert _JARS.is_dir(), "HDFS is not there: make places fetches it"
    details = folder / "details.json"
    spark = Path(pyspark.__file__).parent / "jars"
    command = ["java", "-Xmx512m", "-cp", f"{_JARS}/*:{spark}/*", _CLUSTER, "-nomr", "-format", "-nnport", "0"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [*command, "-writeDetails", str(details)], cwd=folder, stdin=subprocess.PIPE, stdout=log, stderr=log
        )
    try:
        for _ in range(300):
            assert process.poll() is None, (folder / "log").read_text()
            if details.exists() and details.stat().st_size:
                break
            time.sleep(0.2)
        yield f"hdfs://localhost:{json.loads(details.read_text())['namenode_port']}"
    finally:
        process.kill()
        process.communicate()
