"""A Spark standalone cluster: two workers in processes and with Python of their own, which lacks this package."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pytest
from certificates import Authority
from cluster import FOR_PYARROW, Cluster, assert_equal_to_source, cluster, insert, succeeded, worker_python, write_gold
from deltalake import DeltaTable
from pymongo import MongoClient
from pymongo.database import Database

from strandline.source.mongod import EmbeddedMongod, free_ports

Db = Database[dict[str, Any]]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return worker_python(tmp_path_factory.mktemp("python"))


@pytest.fixture(scope="module")
def two_workers(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("two") / "cluster", python, python) as running:
        yield running


@pytest.fixture
def poor_worker(python: Path, tmp_path: Path) -> Iterator[Cluster]:
    """One worker with all packages, and one without MongoDB's."""
    with cluster(tmp_path / "cluster", python, worker_python(tmp_path / "poor", FOR_PYARROW)) as running:
        yield running


def refused(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The one line of a refusal."""
    assert done.returncode == code, done.stderr[-4000:]
    assert "Traceback" not in done.stderr
    assert "\tat " not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("strandline: ")]
    return line


def raised(done: subprocess.CompletedProcess[str]) -> str:
    """The line of an error that was raised instead of an exit code."""
    assert done.returncode == 1, done.stderr[-4000:]
    assert "\tat " not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("ConfigurationError: ")]
    return line


def bronze(lake: Path) -> DeltaTable:
    return DeltaTable(lake / "bronze" / "test")


def assert_one_commit_for_each_chunk(lake: Path, documents: int) -> int:
    """Returns the number of chunks."""
    rows = bronze(lake).to_pyarrow_table(columns=["op", "operation_type", "chunk", "collection", "key"]).to_pylist()
    chunks = [row["chunk"] for row in rows if row["operation_type"] == "chunk"]
    assert len(chunks) == len(set(chunks)), "a chunk was committed twice"
    reads = [(row["collection"], row["key"]) for row in rows if row["op"] == "r"]
    assert len(reads) == len(set(reads)) == documents
    return len(chunks)


# promise 7
def test_the_whole_way_on_two_workers(
    two_workers: Cluster, mongo_uri: str, database: Db, tmp_path: Path, record_property: Callable[..., None]
) -> None:
    insert(database, 10_000)
    lake = tmp_path / "lake"
    env = two_workers.environment(mongo_uri, database.name, lake) | {
        "STRANDLINE_CAPTURE__SNAPSHOT_CHUNK_SIZE": "2500",
        "STRANDLINE_GOLD__SQL_DIR": write_gold(tmp_path / "gold"),
    }
    succeeded(two_workers.run(env, "run", "--once"))
    assert set(two_workers.tasks()) == {"0", "1"}, "both workers have worked"
    record_property("found", f"cluster: successful tasks by worker: {dict(two_workers.tasks())}")
    assert_one_commit_for_each_chunk(lake, 20_000)
    database.orders.update_many({"n": 3}, {"$set": {"n": 1000}})
    database.orders.delete_many({"n": 5})
    # more than 4,000 events: they are parsed on the workers, too
    database.customers.update_many({"n": {"$lt": 50}}, {"$inc": {"n": 1000}})
    succeeded(two_workers.run(env, "run", "--once"))
    assert_equal_to_source(two_workers, env, database)
    assert DeltaTable(lake / "gold" / "by_n").to_pyarrow_table()["orders"].to_pylist() != []
    assert sum(DeltaTable(lake / "gold" / "by_n").to_pyarrow_table()["orders"].to_pylist()) == (
        database.orders.count_documents({})
    )


# promises 2 and 7
def test_a_worker_is_killed_within_a_chunk_and_within_a_merge(
    two_workers: Cluster, mongo_uri: str, database: Db, tmp_path: Path, record_property: Callable[..., None]
) -> None:
    insert(database, 30_000, size=2_000)  # large enough for a MERGE that writes for seconds
    lake = tmp_path / "lake"
    env = two_workers.environment(mongo_uri, database.name, lake)
    env["STRANDLINE_CAPTURE__SNAPSHOT_CHUNK_SIZE"] = "10000"
    hold_a_read(database, "orders")
    with two_workers.started(env, "run", "--once") as process:
        until(lambda: (reader := executor_that_reads(database, "orders")) is not None and not reader.kill())
        until(lambda: (writer := executor_that_writes(two_workers, lake / "silver")) is not None and not writer.kill())
        _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said[-4000:]
    lost = [event for event in two_workers.history() if reason(event) in ("ExecutorLostFailure", "FetchFailed")]
    assert len({event["Stage ID"] for event in lost if reason(event) == "ExecutorLostFailure"}) >= 2
    chunks = assert_one_commit_for_each_chunk(lake, 60_000)
    assert "failed" not in said
    record_property("found", f"cluster: {chunks} chunks, {len(lost)} tasks lost with two executors, nothing repeated")
    assert_equal_to_source(two_workers, env, database)


# promises 2 and 7
def test_speculative_execution_commits_each_chunk_once(
    two_workers: Cluster, mongo_uri: str, database: Db, tmp_path: Path, record_property: Callable[..., None]
) -> None:
    insert(database, 60_000)
    lake = tmp_path / "lake"
    eager = {
        "spark__speculation": "true",
        "spark__speculation__interval": "50ms",
        "spark__speculation__multiplier": "1.0",
        "spark__speculation__quantile": "0.1",
        "spark__speculation__minTaskRuntime": "50ms",
        "spark__speculation__task__duration__threshold": "200ms",
    }
    env = two_workers.environment(mongo_uri, database.name, lake, **eager)
    env |= {"STRANDLINE_CAPTURE__SNAPSHOT_CHUNK_SIZE": "20000", "STRANDLINE_CAPTURE__SNAPSHOT_MAX_THREADS": "1"}
    succeeded(two_workers.run(env, "capture", "--once"))
    started = [event["Task Info"] for event in two_workers.history() if event["Event"] == "SparkListenerTaskStart"]
    twice = sum(task["Speculative"] for task in started)
    assert twice > 0
    chunks = assert_one_commit_for_each_chunk(lake, 120_000)
    record_property("found", f"cluster: {chunks} chunks with {twice} speculative tasks, one commit for each chunk")


@pytest.mark.parametrize("wait_ms", [0, 200])
def test_one_worker_and_two_do_the_same_work(
    two_workers: Cluster,
    mongo_uri: str,
    database: Db,
    tmp_path: Path,
    record_property: Callable[..., None],
    wait_ms: int,
) -> None:
    """Times are printed. All processes share this machine's cores, so only a source that answers late shows a gain."""
    insert(database, 50_000)
    seconds = {}
    for cores in (1, 2):
        lake = tmp_path / f"lake-{cores}"
        env = two_workers.environment(mongo_uri, database.name, lake, spark__cores__max=str(cores))
        env["STRANDLINE_CAPTURE__SNAPSHOT_CHUNK_SIZE"] = "12500"
        env["STRANDLINE_CAPTURE__SNAPSHOT_FETCH_SIZE"] = "1000"
        with late_replies(database, wait_ms):
            done = two_workers.run(env, "capture", "--once")
        succeeded(done)
        assert len(two_workers.tasks()) == cores
        assert_one_commit_for_each_chunk(lake, 100_000)
        begun, ended = (time_of(word, done.stderr) for word in ("STARTED", "COMPLETED"))
        seconds[cores] = ended - begun
    record_property(
        "found",
        f"cluster: snapshot of 100,000 documents, replies {wait_ms} ms late: one worker {seconds[1]:.1f} s,"
        f" two {seconds[2]:.1f} s, ratio {seconds[1] / seconds[2]:.2f}",
    )


def test_doctor_asks_every_worker(poor_worker: Cluster, mongo_uri: str, database: Db, tmp_path: Path) -> None:
    insert(database, 100)
    env = poor_worker.environment(mongo_uri, database.name, tmp_path / "lake")
    done = poor_worker.run(env, "doctor", "--workers")
    lines = [line for line in done.stdout.splitlines() if "spark.workers" in line]
    assert len(lines) == 2
    sound, poor = sorted(lines, key=lambda line: "lacks" in line)
    for part in ("strandline 0.1.0, Python 3.1", "pyarrow", "pymongo 4.", "bsonjs", "MongoDB answers", "clock +"):
        assert part.replace("clock +", "clock ") in sound
    assert "it lacks the Python package pymongo; it lacks the Python package bsonjs" in poor
    assert "it lacks the Python package pymongo" in refused(done, 2)


def test_a_worker_that_lacks_a_package_is_one_line(
    two_workers: Cluster, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    """On Databricks the platform installs the wheel, so the program sends nothing. There a refusal is raised."""
    insert(database, 100)
    env = two_workers.environment(mongo_uri, database.name, tmp_path / "lake") | {"DATABRICKS_RUNTIME_VERSION": "18"}
    done = two_workers.run(env, "doctor", "--workers")
    assert done.stdout.count("it lacks this package (strandline)") == 2
    assert "it lacks this package (strandline)" in raised(done)
    assert "a Spark worker lacks this package (strandline)" in raised(two_workers.run(env, "capture", "--once"))
    assert not bronze(tmp_path / "lake").to_pyarrow_table(filters=[("op", "=", "r")]).num_rows


def test_a_file_of_tls_that_only_the_driver_has_is_named(two_workers: Cluster, tmp_path: Path) -> None:
    """Both are on one machine, so the path is relative: workers run in folders of their own."""
    authority = Authority(two_workers.folder, "authority")
    arguments = ["--tlsMode", "preferTLS", "--tlsAllowConnectionsWithoutCertificates", "--tlsCAFile", authority.file]
    arguments += ["--tlsCertificateKeyFile", authority.issue("server")]
    with EmbeddedMongod(extra_args=[str(each) for each in arguments]) as server:
        with MongoClient[Any](server.uri) as client:
            client.shop.orders.insert_one({"_id": 1})
        uri = f"{server.uri}&tls=true&tlsCAFile={authority.file.name}"
        env = two_workers.environment(uri, "shop", tmp_path / "lake")
        done = two_workers.run(env, "doctor", "--workers")
        assert done.stdout.count("authority.pem is not there") == 2
        refused(done, 2)
        line = refused(two_workers.run(env, "capture", "--once"), 2)
    assert "on a Spark worker: no TLS connection to MongoDB can be made (No such file or directory" in line


class Firewall:
    """Forwards connections to a server. Those of processes below *parents* are closed."""

    def __init__(self, target: int, parents: list[int]) -> None:
        (self.port,) = free_ports(1)
        self._target, self._parents = target, set(parents)
        self._listening = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                theirs, (_, port) = self._listening.accept()
            except OSError:
                return
            if self._is_outside(port):
                theirs.close()
                continue
            ours = socket.create_connection(("127.0.0.1", self._target))
            for pair in ((theirs, ours), (ours, theirs)):
                threading.Thread(target=_copy, args=pair, daemon=True).start()

    def _is_outside(self, port: int) -> bool:
        return bool(self._parents & {each.pid for each in parents_of_owner(port)})

    def close(self) -> None:
        self._listening.close()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with source, target:
        try:
            while part := source.recv(1 << 16):
                target.sendall(part)
        except OSError:
            return


def test_a_worker_that_reaches_no_mongodb_is_named(two_workers: Cluster, database: Db, tmp_path: Path) -> None:
    insert(database, 100)
    assert database.client.primary is not None
    port = database.client.primary[1]
    wall = Firewall(port, [worker.pid for worker in two_workers.workers])
    uri = f"mongodb://127.0.0.1:{wall.port}/?directConnection=true&serverSelectionTimeoutMS=1000"
    env = two_workers.environment(uri, database.name, tmp_path / "lake", spark__task__maxFailures="1")
    try:
        done = two_workers.run(env, "doctor", "--workers")
        assert done.stdout.count("MongoDB cannot be reached") == 2
        assert "(the first of 2 errors)" in refused(done, 2)
        line = refused(two_workers.run(env, "capture", "--once"), 75)
    finally:
        wall.close()
    assert "a snapshot chunk failed" in line
    assert "on a Spark worker: MongoDB did not answer" in line


def until(reached: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def reason(event: dict[str, Any]) -> str:
    return str(event.get("Task End Reason", {}).get("Reason"))


def hold_a_read(database: Db, collection: str) -> None:
    """The next reply to a reader of the collection takes four seconds."""
    held = {"failCommands": ["getMore"], "namespace": f"{database.name}.{collection}"}
    held |= {"blockConnection": True, "blockTimeMS": 4000}
    database.client.admin.command("configureFailPoint", "failCommand", mode={"times": 1}, data=held)


@contextmanager
def late_replies(database: Db, wait_ms: int) -> Iterator[None]:
    held = {"failCommands": ["getMore"], "appName": "strandline", "blockConnection": True, "blockTimeMS": wait_ms}
    admin = database.client.admin
    if wait_ms:
        admin.command("configureFailPoint", "failCommand", mode="alwaysOn", data=held)
    yield
    admin.command("configureFailPoint", "failCommand", mode="off")


def time_of(word: str, log: str) -> float:
    """Time of the notification of a snapshot."""
    (line,) = [line for line in log.splitlines() if f"Initial Snapshot {word} " in line]
    return datetime.fromisoformat(json.loads(line)["at"]).timestamp()


def executor_that_reads(database: Db, collection: str) -> psutil.Process | None:
    """The executor whose Python waits for a reply."""
    operations = database.client.admin.aggregate([{"$currentOp": {"allUsers": True}}])
    for operation in operations:
        if operation.get("command", {}).get("collection") == collection and "getMore" in operation["command"]:
            port = int(operation["client"].rpartition(":")[2])
            parents = parents_of_owner(port)
            return next((each for each in parents if "CoarseGrained" in " ".join(each.cmdline())), None)
    return None


def parents_of_owner(port: int) -> list[psutil.Process]:
    """The processes above the one whose connection has this local port."""
    for connection in psutil.net_connections("tcp"):
        if connection.laddr and connection.laddr.port == port and connection.pid:
            with suppress(psutil.NoSuchProcess):
                return psutil.Process(connection.pid).parents()
    return []


def executor_that_writes(cluster: Cluster, folder: Path) -> psutil.Process | None:
    """An executor that has a data file of a table in *folder* open."""
    for executor in cluster.executors():
        with suppress(psutil.NoSuchProcess):
            names = [Path(file.path) for file in executor.open_files() if file.path.endswith(".parquet")]
            if any(folder in name.parents for name in names):
                return executor
    return None
