"""A Spark with hostile settings in its own files, and what other users of the machine can see of a start."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from documents import ROOT
from lakehouse import all_in_silver, documents_in_source, pipeline
from processes import QUICK_JVM
from pymongo.database import Database
from pyspark.sql import SparkSession

from strandline.io.spark.jvm import as_properties
from strandline.io.spark.session_settings import PINNED, UNSET

CANARY = "c4nary-of-a-secret-key"
SECRET = "spark.hadoop.fs.s3a.secret.key"
NOISE = ("incubator", "log level", "logging level", "log4j", "Ivy", "::")
KEYS = [
    "it's",
    "back\\slash",
    "\\",
    "\\'",
    "''",
    '"q"',
    "`b`",
    "${x}",
    "${env:HOME}",
    "line\nbreak",
    "a{b}",
    "\\u0041",
    "A",
    "-- c",
]
ODD = "it's \\ {x}"  # a collection
OTHER = {
    "CORRECTED": "LEGACY",
    "UTC": "Pacific/Chatham",
    "TIMESTAMP_LTZ": "TIMESTAMP_NTZ",
    "ANSI": "LEGACY",
    "EXCEPTION": "LAST_WIN",
    "TIMESTAMP_MICROS": "TIMESTAMP_MILLIS",
    "auto": "none",
    "0ms": "1h",
    "versionAsOf": "timestampAsOf2",
    "true": "false",
    "false": "true",
}
# A session cannot be opened at all with some values, whatever is set in it afterwards.
HOSTILE = {key: OTHER[value] for key, (value, _) in PINNED.items()} | {
    "spark.databricks.delta.write.txnAppId": "another",
    "spark.databricks.delta.write.txnVersion": "1",
    "spark.databricks.delta.commitInfo.userMetadata": "mine",
    "spark.databricks.delta.properties.defaults.setTransactionRetentionDuration": "interval 0 seconds",
    "spark.databricks.delta.properties.defaults.appendOnly": "true",
    "spark.databricks.delta.properties.defaults.columnMapping.mode": "name",
}


def configured(folder: Path, mongo_uri: str, database: str) -> dict[str, str]:
    """The environment of a user on such a cluster."""
    assert HOSTILE.keys() == PINNED.keys() | UNSET.keys()
    for name in ("spark", "conf"):
        (folder / name).mkdir()
    (folder / "spark" / "spark-defaults.conf").write_text(as_properties(HOSTILE), encoding="utf-8")
    settings = {
        "source": {"name": "test"},
        "capture": {"scope": "database", "target": database},
        "lake": {"root": str(folder / "lake")},
        "spark": {"master": "local[2]", "conf": {SECRET: CANARY}},
    }
    (folder / "conf" / "base.yml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    own = {"SPARK_CONF_DIR": str(folder / "spark"), "STRANDLINE_CONF": str(folder / "conf"), "MONGODB_URI": mongo_uri}
    return os.environ | QUICK_JVM | own | {"PYTHONPATH": str(ROOT / "pipelines")}


def command_lines(process: psutil.Process) -> str:
    """Return the command lines of a process and its children, as every user of the machine can read them."""
    lines = []
    for one in [process, *process.children(recursive=True)]:
        try:
            lines.append(" ".join(one.cmdline()))
        except psutil.Error:
            continue
    return "\n".join(lines)


def watch(process: subprocess.Popen[str], seen: set[str]) -> None:
    """Collect every command line that is there as long as *process* runs."""
    while process.poll() is None:
        seen.update(command_lines(psutil.Process(process.pid)).splitlines())
        time.sleep(0.05)


def ran(env: dict[str, str], script: str, meanwhile: Callable[[], None]) -> tuple[str, str, str]:
    """Run *script*, which waits for *meanwhile* when it has printed `CHANGE`.

    Returns:
        Standard output, standard error, and every command line that was there meanwhile.
    """
    folder, seen, said = Path(env["STRANDLINE_CONF"]).parent, set[str](), list[str]()
    with (folder / "stderr").open("w+", encoding="utf-8") as err:
        process = subprocess.Popen(
            [sys.executable, "-c", script],
            env=env,
            cwd=env["STRANDLINE_CONF"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
        )
        watcher = threading.Thread(target=watch, args=(process, seen))
        watcher.start()
        assert process.stdin is not None
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if line == f"{CHANGE}\n":
                meanwhile()
                process.stdin.write("\n")
                process.stdin.flush()
        watcher.join()
        process.stdin.close()
        process.stdout.close()
        err.seek(0)
        errors = err.read()
        assert process.wait() == 0, "".join(said) + errors
    return "".join(said), errors, "\n".join(seen)


CHANGE = "the source may change now"
SCRIPT = f"""
import sys
from pathlib import Path
from strandline.cli import app
from strandline.io.spark.session_settings import PINNED, UNSET
from strandline.jobs.context import open_context
from strandline.settings.configuration import load_settings
assert app(["run", "--once"], standalone_mode=False) in (None, 0)
print({CHANGE!r}, flush=True)
sys.stdin.readline()
assert app(["run", "--once"], standalone_mode=False) in (None, 0)
spark = open_context(load_settings("local", Path("."))).spark
conf = spark.sparkContext._jsc.hadoopConfiguration()
print(conf.get({SECRET.removeprefix("spark.hadoop.")!r})[::-1])
differing = [key for key, (value, _) in PINNED.items() if spark.conf.get(key) != value]
print(differing, [key for key in UNSET if key in spark.conf.getAll])
"""
"""Two runs and a look at their session, in one process: most of a start is the JVM's."""


# promise 2, promise 7
@pytest.mark.long
def test_silver_equals_the_source_whatever_the_cluster_has_set_and_no_secret_is_seen(
    spark: SparkSession, mongo_uri: str, database: Database[dict[str, Any]], tmp_path: Path
) -> None:
    env = configured(tmp_path, mongo_uri, database.name)
    database.orders.insert_many([{"_id": key, "n": 1, "text": key} for key in KEYS])
    database.create_collection(ODD)
    database[ODD].insert_one({"_id": 1, "a": {"b": [1, None]}})

    def change() -> None:
        database.orders.update_many({}, {"$set": {"n": 2, "new": "a\\'b"}})
        database.orders.delete_many({"_id": {"$in": KEYS[:3]}})
        database.orders.insert_one({"_id": KEYS[0], "n": 3})

    out, err, lines = ran(env, SCRIPT, change)
    assert CHANGE in out.splitlines()
    assert out.splitlines()[-2:] == [CANARY[::-1], "[] []"], "effective, and nothing of the cluster's is"

    ctx = pipeline(spark, mongo_uri, database.name, tmp_path / "lake")
    for name in ("orders", ODD):
        assert all_in_silver(ctx, name)[name] == documents_in_source(database, name)
    assert "java" in lines
    assert "SparkSubmit" in lines
    assert CANARY not in out + err + lines
    assert [line for line in err.splitlines() if any(noise in line for noise in NOISE)] == []
    assert [
        path
        for path in tmp_path.rglob("*")
        if path.is_file() and path.name != "base.yml" and CANARY.encode() in path.read_bytes()
    ] == []
