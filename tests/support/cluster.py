"""A Spark standalone cluster of the tests' own: a master and workers as processes on loopback.

Each worker has its own folder, its own address (127.0.0.1, 127.0.0.2, …), one core, and its own Python. That Python
finds pyarrow, pymongo and bsonjs, and not this package.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import venv
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import psutil
import pyspark
from processes import environment
from pymongo.database import Database

from strandline.source.mongod import free_ports

Db = Database[dict[str, Any]]
ROOT: Final = Path(__file__).parents[2]
SPARK_HOME: Final = Path(pyspark.__file__).parent
FOR_PYARROW: Final = ("pyarrow", "numpy", "pandas", "dateutil", "six", "pytz", "tzdata")
WORKER_PACKAGES: Final = (*FOR_PYARROW, "pymongo", "bson", "gridfs", "bsonjs")
"""Modules of a worker's Python. Spark brings its own pyspark and py4j to every executor."""
PYTHON: Final = "worker-python"
"""Name of the interpreter. Each worker finds its own on its PATH."""
NAMES: Final = ("orders", "customers")
"""Collections of the tests."""
_EXECUTOR: Final = "CoarseGrainedExecutorBackend"
_START_SECONDS: Final = 60


def worker_python(folder: Path, packages: Sequence[str] = WORKER_PACKAGES) -> Path:
    """Create a virtual environment with links to *packages*, and return its folder of programs."""
    venv.create(folder, symlinks=True, with_pip=False)
    library = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    for name in packages:
        if (found := find_spec(name)) is None or found.origin is None:
            continue
        origin = Path(found.origin)
        source = origin.parent if found.submodule_search_locations else origin
        (library / source.name).symlink_to(source)
        if (shared := source.parent / f"{name}.libs").is_dir():  # libraries that a wheel brings along
            (library / shared.name).symlink_to(shared)
    (folder / "bin" / PYTHON).symlink_to("python")
    return folder / "bin"


@dataclass
class Cluster:
    """A running cluster. Its programs know nothing of the checkout's folder."""

    folder: Path
    port: int = field(default_factory=lambda: free_ports(1)[0])
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    @property
    def events(self) -> Path:
        """Folder of Spark's event logs, one file per application."""
        return self.folder / "events"

    def start(self) -> None:
        self.events.mkdir(parents=True)
        self._start("master.Master", self.folder, "--host", "127.0.0.1", "--port", self.port, "--webui-port", 0)
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        raise TimeoutError(f"no master: {(self.folder / 'log').read_text(encoding='utf-8')[-2000:]}")

    def add_worker(self, programs: Path) -> None:
        """Start a worker whose executors find `PYTHON` in *programs*."""
        number = len(self.workers) + 1
        own = self.folder / f"worker-{number}"
        own.mkdir()
        place = ("--host", f"127.0.0.{number}", "--port", 0, "--webui-port", 0)
        size = ("--cores", 1, "--memory", "1g", "--work-dir", own)
        self.workers.append(self._start("worker.Worker", own, *place, *size, self.master, programs=programs))

    def _start(self, name: str, cwd: Path, *arguments: object, programs: Path | None = None) -> subprocess.Popen[bytes]:
        path = f"{programs}:{os.defpath}" if programs else os.defpath
        java = {key: os.environ[key] for key in ("JAVA_HOME",) if key in os.environ}
        env = java | {"PATH": path, "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC"}
        if not java:  # where this process finds Java
            env["PATH"] = f"{path}:{os.environ['PATH']}" if programs is None else f"{programs}:{os.environ['PATH']}"
        command = [SPARK_HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments]
        with (cwd / "log").open("wb") as log:
            process = subprocess.Popen(
                [str(part) for part in command], cwd=cwd, env=env, stdout=log, stderr=log, start_new_session=True
            )
        self.processes.append(process)
        return process

    def executors(self) -> list[psutil.Process]:
        """Processes of the executors, in the order of the workers."""
        found = []
        for worker in self.workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                found += [
                    child for child in psutil.Process(worker.pid).children() if _EXECUTOR in " ".join(child.cmdline())
                ]
        return found

    def stop(self) -> None:
        for process in reversed(self.processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)

    def conf(self, **more: str) -> dict[str, str]:
        """Settings of Spark for a driver. *more* with ``__`` for a dot."""
        return {
            "spark.pyspark.python": PYTHON,
            "spark.driver.memory": "1g",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "700m",
            "spark.executor.extraJavaOptions": "-XX:+UseSerialGC",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "4",
            "spark.databricks.delta.snapshotPartitions": "2",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": self.events.as_uri(),
            **{key.replace("__", "."): value for key, value in more.items()},
        }

    def environment(self, uri: str, database: str, lake: Path | str, **conf: str) -> dict[str, str]:
        """Environment of a driver process."""
        return environment(uri, database) | {
            "STRANDLINE_CAPTURE__ENGINE": "spark",
            "STRANDLINE_CAPTURE__HEARTBEAT_INTERVAL_MS": "100",
            "STRANDLINE_LAKE__ROOT": str(lake),
            "STRANDLINE_SPARK__MASTER": self.master,
            "STRANDLINE_SPARK__CONF": json.dumps(self.conf(**conf)),
            "PYTHONPATH": str(ROOT / "pipelines"),
        }

    def run(self, env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the program, outside the checkout's folder."""
        with self.started(env, *arguments) as process:
            out, err = process.communicate(timeout=300)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    @contextmanager
    def started(self, env: dict[str, str], *arguments: str) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            [sys.executable, "-m", "strandline.cli", *arguments],
            cwd=self.folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()

    def history(self) -> list[dict[str, Any]]:
        """Events of the newest application."""
        newest = max(self.events.iterdir(), key=lambda file: file.stat().st_mtime)
        return [json.loads(line) for line in newest.read_text(encoding="utf-8").splitlines()]

    def tasks(self) -> Counter[str]:
        """Successful tasks of the newest application by executor."""
        ended = [event for event in self.history() if event["Event"] == "SparkListenerTaskEnd"]
        return Counter(
            event["Task Info"]["Executor ID"] for event in ended if event["Task End Reason"]["Reason"] == "Success"
        )


@contextmanager
def cluster(folder: Path, *programs: Path) -> Iterator[Cluster]:
    """Yield a cluster with one worker for each item of *programs*, and end it."""
    running = Cluster(folder)
    try:
        running.start()
        for each in programs:
            running.add_worker(each)
        yield running
    finally:
        running.stop()


def insert(database: Db, documents: int, size: int = 200) -> None:
    for name in NAMES:
        rows = ({"_id": number, "n": number % 97, "text": f"{number:08}" * (size // 8)} for number in range(documents))
        database[name].insert_many(rows, ordered=False)


def write_gold(folder: Path) -> str:
    """Write the SQL of the table ``by_n``, which counts orders. Return the folder."""
    folder.mkdir()
    (folder / "by_n.sql").write_text(
        "-- materialized: table\nselect n, count(*) as orders from silver.orders where not _deleted group by n",
        encoding="utf-8",
    )
    return str(folder)


def succeeded(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr[-4000:]
    assert "Traceback" not in done.stderr
    return done.stdout


def assert_equal_to_source(running: Cluster, env: dict[str, str], database: Db) -> None:
    """Reconcile compares every document, and the test counts for itself."""
    assert "differing" in succeeded(running.run(env, "reconcile"))
    sums = "select '{0}' as name, count(*) as rows, count(distinct _key) as keys, sum(cast(n as bigint)) as n"
    parts = [f"{sums} from silver.{{0}} where not _deleted".format(name) for name in NAMES]
    found = json.loads(succeeded(running.run(env, "sql", "--json", " union all ".join(parts))))
    assert {row["name"]: (row["rows"], row["keys"], row["n"]) for row in found} == {
        name: (*2 * (database[name].count_documents({}),), total(database, name)) for name in NAMES
    }


def total(database: Db, name: str) -> int:
    (found,) = database[name].aggregate([{"$group": {"_id": None, "n": {"$sum": "$n"}}}])
    return int(found["n"])
