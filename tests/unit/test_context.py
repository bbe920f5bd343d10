"""Checks before the first write: log store, JDK, Spark settings."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from strandline.errors import ConfigurationError
from strandline.io.delta_log.object_store import StoreOptions
from strandline.io.spark import s3_session
from strandline.io.spark.log_stores import FOLDER_LOG_STORE, JAR, S3_LOG_STORE
from strandline.io.spark.s3_session import s3_conf
from strandline.io.spark.session import session_conf
from strandline.io.spark.spark_versions import delta_package, minor_of
from strandline.io.tables.log_store_check import refuse_log_store

DYNAMO = "io.delta.storage.S3DynamoDBLogStore"


# scenario: Q09, Q02
@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n", "oss", "cosn", "obs", "oci"])
def test_a_scheme_needs_a_log_store_that_keeps_drivers_apart(scheme: str) -> None:
    location = f"{scheme}://bucket/lake"
    for store in (None, "io.delta.storage.S3SingleDriverLogStore"):
        with pytest.raises(ConfigurationError, match=rf"spark\.delta\.logStore\.{scheme}\.impl"):
            refuse_log_store(location, store)
    refuse_log_store(location, DYNAMO)
    refuse_log_store(location, S3_LOG_STORE)


@pytest.mark.parametrize(
    "location", ["lake", "/lake", "file:/lake", "hdfs://n/l", "dbfs:/l", "abfss://c@a/l", "gs://b/l"]
)
def test_other_places_have_a_commit_that_only_one_can_make(location: str) -> None:
    refuse_log_store(location, None)


def test_a_session_for_s3_has_the_log_store_and_the_users_settings() -> None:
    s3 = s3_conf(StoreOptions("http://minio:9000"), {}) | {"spark.jars": "/s3.jar"}
    own = {"spark.jars": "own.jar", "spark.hadoop.fs.s3a.endpoint.region": "own"}
    sent = session_conf("local", own, jars=[Path("/jars/io.delta_delta-spark.jar")], s3=s3)
    assert sent["spark.jars"] == f"/jars/io.delta_delta-spark.jar,{JAR},/s3.jar,own.jar"
    assert {sent[f"spark.delta.logStore.{scheme}.impl"] for scheme in ("s3", "s3a")} == {S3_LOG_STORE}
    assert sent["spark.hadoop.fs.s3a.endpoint.region"] == "own"
    assert sent["spark.hadoop.fs.s3a.connection.ssl.enabled"] == "false"
    on_aws = s3_conf(StoreOptions(), {"AWS_REGION": "eu-central-1"})
    assert on_aws["spark.hadoop.fs.s3a.endpoint.region"] == "eu-central-1"
    assert "spark.hadoop.fs.s3a.endpoint" not in on_aws


_NEEDS_CONDITIONAL_PUT = pytest.mark.skipif(
    minor_of(pyspark.__version__) == "4.0",
    reason="Spark 4.0 has a Hadoop without conditional PUT, so a lake on S3 is refused",
)


@_NEEDS_CONDITIONAL_PUT
def test_packages_of_s3_that_are_not_all_there_are_fetched(tmp_path: Path) -> None:
    packages = s3_session.packages()
    names = ["{}_{}-{}.jar".format(*package.split(":")) for package in packages]
    for name in [*names[1:], "org.slf4j_slf4j-api-1.7.36.jar"]:
        (tmp_path / name).touch()
    assert s3_session.fetched(packages, tmp_path) == []
    (tmp_path / names[0]).touch()
    assert [jar.name for jar in s3_session.fetched(packages, tmp_path)] == sorted(names)


@_NEEDS_CONDITIONAL_PUT
def test_jars_of_an_earlier_spark_are_not_mixed_in(tmp_path: Path) -> None:
    packages = s3_session.packages()
    names = ["{}_{}-{}.jar".format(*package.split(":")) for package in packages]
    theirs = "software.amazon.eventstream_eventstream-{}.jar"
    earlier = ["org.apache.hadoop_hadoop-aws-3.3.6.jar", "software.amazon.awssdk_bundle-2.24.6.jar"]
    for name in [*names, *earlier, theirs.format("1.0.1")]:
        (tmp_path / name).touch()
    found = [jar.name for jar in s3_session.fetched(packages, tmp_path)]
    assert found == sorted([*names, theirs.format("1.0.1")])
    (tmp_path / theirs.format("1.0.2")).touch()
    assert s3_session.fetched(packages, tmp_path) == [], "only Ivy knows which of two this SDK needs"


def test_a_log_store_is_set_where_spark_is_started() -> None:
    own = {"spark.delta.logStore.s3.impl": S3_LOG_STORE, "spark.sql.shuffle.partitions": "7"}
    assert session_conf("local", own)["spark.delta.logStore.s3.impl"] == S3_LOG_STORE
    sent = session_conf(None, own)
    assert "spark.delta.logStore.s3.impl" not in sent, "the client would read its own value as the server's"
    assert sent["spark.sql.shuffle.partitions"] == "7"


@pytest.mark.parametrize("master", ["local[2]", "spark://host:7077"])
def test_a_session_that_is_started_here_creates_its_commits_in_a_folder(master: str) -> None:
    key = "spark.delta.logStore.file.impl"
    sent = session_conf(master, {})
    assert (sent[key], sent["spark.jars"]) == (FOLDER_LOG_STORE, str(JAR))
    assert session_conf(master, {key: "own.LogStore"})[key] == "own.LogStore"
    assert key not in session_conf(master, {"spark.delta.logStore.class": "own.LogStore"}), "Delta refuses both"
    assert key not in session_conf(None, {})


def test_a_script_that_a_worker_process_reads_again_starts_no_second_capture(tmp_path: Path) -> None:
    script = tmp_path / "on_top_level.py"
    script.write_text(
        "import multiprocessing\n"
        "from strandline.io.spark.session import build_session\n"
        "if __name__ == '__main__':\n"
        "    worker = multiprocessing.get_context('forkserver').Process(target=print)\n"
        "    worker.start()\n"
        "    worker.join()\n"
        "else:\n"
        "    build_session('second', master='local[1]')\n"
    )
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, cwd=Path.cwd())
    assert "begin what the script does with: if __name__" in ran.stderr


OF_A_LAPTOP = {
    "spark.driver.host",
    "spark.driver.bindAddress",
    "spark.driver.memory",
    "spark.sql.shuffle.partitions",
    "spark.databricks.delta.snapshotPartitions",
}


@pytest.mark.parametrize(
    ("master", "is_laptop"),
    [
        ("local[*]", True),
        ("local", True),
        ("spark://host:7077", False),
        ("yarn", False),
        ("k8s://https://host", False),
        (None, False),
    ],
)
def test_only_a_local_master_gets_laptop_settings(master: str | None, is_laptop: bool) -> None:
    sent = session_conf(master, {"spark.app": "own"})
    assert OF_A_LAPTOP & set(sent) == (OF_A_LAPTOP if is_laptop else set())
    assert ("127.0.0.1" in sent.values()) == is_laptop
    assert ("spark.sql.extensions" in sent) == (master is not None)
    assert (sent["spark.sql.session.timeZone"], sent["spark.app"]) == ("UTC", "own")


@pytest.mark.parametrize(
    ("master", "own", "is_small"),
    [("local[2]", {}, True), ("local", {"spark.driver.memory": "16g"}, False), ("yarn", {}, False)],
)
def test_collector_and_pages_of_a_small_heap_are_chosen_for_no_other(
    master: str, own: dict[str, str], is_small: bool
) -> None:
    sent = session_conf(master, own, java_options="-Down=1")
    options = sent["spark.driver.extraJavaOptions"].split()
    assert ("-XX:+UseSerialGC" in options) == ("spark.buffer.pageSize" in sent) == is_small
    assert options[-1] == "-Down=1"


def test_lists_of_a_user_are_added_to_our_own() -> None:
    added = {
        "spark.jars": "own.jar",
        "spark.jars.packages": "a:b:1",
        "spark.sql.extensions": "own.Extension",
        "spark.driver.memory": "8g",
    }
    sent = session_conf("local[2]", added, jars=[Path("/jars/io.delta_delta-spark.jar")])
    assert sent["spark.jars"] == f"/jars/io.delta_delta-spark.jar,{JAR},own.jar"
    assert sent["spark.jars.packages"] == "a:b:1"
    assert sent["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension,own.Extension"
    assert sent["spark.driver.memory"] == "8g"
    sent = session_conf("yarn", added)
    assert (sent["spark.jars"], sent["spark.jars.packages"]) == (
        f"{JAR},own.jar",
        f"{delta_package(pyspark.__version__)},a:b:1",
    )
    assert session_conf(None, added)["spark.jars"] == "own.jar"


def test_a_user_may_bring_another_delta() -> None:
    own = {"spark.jars.packages": "io.delta:delta-spark_4.2_2.13:9.9.9"}
    sent = session_conf("local", own, jars=[Path("/jars/io.delta_delta-spark.jar")])
    assert sent["spark.jars.packages"] == own["spark.jars.packages"]
    assert sent["spark.jars"] == str(JAR)


def test_the_packages_for_s3_fit_the_spark_that_is_installed() -> None:
    (hadoop,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    if minor_of(pyspark.__version__) == "4.0":
        with pytest.raises(
            ConfigurationError, match=r"Hadoop 3\.4\.1, which makes no conditional PUT.*Spark 4\.1 or newer"
        ):
            s3_session.packages()
        return
    assert s3_session.packages()[0] == f"org.apache.hadoop:hadoop-aws:{hadoop.stem.removeprefix('hadoop-client-api-')}"


def ran(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    environ = {
        name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_REMOTE")
    } | environment
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=Path.cwd(), env=environ
    )


@pytest.mark.parametrize(
    ("command", "environment", "reason"),
    [
        (
            "gold",
            {"JAVA_HOME": "/nonexistent"},
            "JAVA_HOME is /nonexistent, and there is no bin/java → let JAVA_HOME name a JDK",
        ),
        ("gold", {"PATH": "{bash alone}"}, "JAVA_HOME is not set, and there is no java on the PATH → install a JDK"),
        (
            "capture",
            {
                "PATH": "{bash alone}",
                "STRANDLINE_ENGINE": "spark",
                "STRANDLINE_SOURCE__URI": "mongodb://localhost:1",
                "STRANDLINE_CAPTURE__SCOPE": "deployment",
            },
            "JAVA_HOME is not set, and there is no java on the PATH → install a JDK",
        ),
    ],
)
def test_without_a_jdk_there_is_one_line_that_says_so(
    tmp_path: Path, command: str, environment: dict[str, str], reason: str
) -> None:
    for tool in ("bash", "dirname", "ps"):  # of Spark's start script
        (tmp_path / tool).symlink_to(shutil.which(tool) or "/bin/false")
    found = {name: value.replace("{bash alone}", str(tmp_path)) for name, value in environment.items()}
    code = f"import sys; from strandline.cli import main; sys.argv = ['strandline', '{command}', '--once']; main()"
    refused = ran(code, **found, STRANDLINE_LAKE__ROOT=str(tmp_path / "lake"))
    assert refused.returncode == 2, refused.stderr
    assert reason in refused.stderr.splitlines()[-1]
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(("module", "code"), [("pyspark", 2), ("strandline.io.tables.spark_tables", 1)])
def test_a_wheel_without_spark_says_what_to_install(module: str, code: int) -> None:
    command = "from strandline.cli import main; sys.argv = ['strandline', 'gold']; main()"
    code_text = f"import sys; sys.modules['{module}'] = None; {command}"
    refused = ran(code_text)
    assert refused.returncode == code, refused.stderr
    assert ("Traceback" in refused.stderr) == (code == 1), "another module that is missing is a defect"
    if code == 2:
        assert refused.stderr.splitlines()[-1].startswith("strandline: pyspark is not installed")
        assert ran(code_text.replace("gold", "version")).returncode == 0
