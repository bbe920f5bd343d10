"""Checks before the first write: log store, JDK, Spark settings."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
import yaml
from documents import ROOT, Page

from pipelines.errors import ConfigurationError
from pipelines.io.session import DELTA_PACKAGE, session_conf
from pipelines.jobs.context import refuse_unfenced
from pipelines.model.tables import Lake

DYNAMO = "io.delta.storage.S3DynamoDBLogStore"


# scenario: Q09, Q02
@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_a_path_on_s3_needs_a_log_store_that_keeps_drivers_apart(scheme: str) -> None:
    lake = Lake(root=f"{scheme}://bucket/lake")
    with pytest.raises(ConfigurationError, match=rf"spark\.delta\.logStore\.{scheme}\.impl"):
        refuse_unfenced(lake, {}.get)
    refuse_unfenced(lake, {f"spark.delta.logStore.{scheme}.impl": DYNAMO}.get)
    refuse_unfenced(lake, {"spark.databricks.cloudProvider": "AWS"}.get)


@pytest.mark.parametrize(
    "lake",
    [Lake(root="lake"), Lake(root="abfss://c@a/lake"), Lake(root="gs://b/l"), Lake(root="s3://b", catalog="main")],
)
def test_other_places_have_a_commit_that_only_one_can_make(lake: Lake) -> None:
    refuse_unfenced(lake, {}.get)


def test_a_script_that_a_worker_process_reads_again_starts_no_second_capture(tmp_path: Path) -> None:
    script = tmp_path / "on_top_level.py"
    script.write_text(
        "import multiprocessing\n"
        "from pipelines.io.session import build_session\n"
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
def test_what_fits_a_laptop_is_sent_to_no_cluster(master: str | None, is_laptop: bool) -> None:
    sent = session_conf(master, {"spark.app": "own"})
    assert OF_A_LAPTOP & set(sent) == (OF_A_LAPTOP if is_laptop else set())
    assert ("127.0.0.1" in sent.values()) == is_laptop
    assert ("spark.sql.extensions" in sent) == (master is not None)
    assert (sent["spark.sql.session.timeZone"], sent["spark.app"]) == ("UTC", "own")


@pytest.mark.parametrize(
    ("master", "own", "is_small"),
    [("local[2]", {}, True), ("local", {"spark.driver.memory": "16g"}, False), ("yarn", {}, False)],
)
def test_a_collector_for_a_small_heap_is_chosen_for_no_other(master: str, own: dict[str, str], is_small: bool) -> None:
    options = session_conf(master, own, java_options="-Down=1")["spark.driver.extraJavaOptions"].split()
    assert ("-XX:+UseSerialGC" in options) == is_small
    assert options[-1] == "-Down=1"


def test_what_a_user_adds_to_lists_replaces_nothing() -> None:
    added = {
        "spark.jars": "own.jar",
        "spark.jars.packages": "a:b:1",
        "spark.sql.extensions": "own.Extension",
        "spark.driver.memory": "8g",
    }
    sent = session_conf("local[2]", added, jars=[Path("/jars/io.delta_delta-spark.jar")])
    assert sent["spark.jars"] == "/jars/io.delta_delta-spark.jar,own.jar"
    assert sent["spark.jars.packages"] == "a:b:1"
    assert sent["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension,own.Extension"
    assert sent["spark.driver.memory"] == "8g"
    sent = session_conf("yarn", added)
    assert (sent["spark.jars"], sent["spark.jars.packages"]) == ("own.jar", f"{DELTA_PACKAGE},a:b:1")
    assert session_conf(None, added)["spark.jars"] == "own.jar"


def test_a_user_may_bring_another_delta() -> None:
    own = {"spark.jars.packages": "io.delta:delta-spark_4.2_2.13:9.9.9"}
    sent = session_conf("local", own, jars=[Path("/jars/io.delta_delta-spark.jar")])
    assert sent["spark.jars.packages"] == own["spark.jars.packages"]
    assert "spark.jars" not in sent


def test_the_recipe_for_s3_fits_the_spark_that_is_pinned() -> None:
    (hadoop,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    (recipe,) = [block for block in Page(ROOT / "docs" / "runbook.md").blocks("yaml") if "S3DynamoDBLogStore" in block]
    conf = yaml.safe_load(recipe)["spark"]["conf"]
    delta = DELTA_PACKAGE.rpartition(":")[2]
    assert conf["spark.jars.packages"].split(",") == [
        f"io.delta:delta-storage-s3-dynamodb:{delta}",
        f"org.apache.hadoop:hadoop-aws:{hadoop.stem.removeprefix('hadoop-client-api-')}",
    ]
    refuse_unfenced(Lake(root="s3a://bucket/lake"), conf.get)


def ran(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    environ = {
        name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_REMOTE")
    } | environment
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=Path.cwd(), env=environ
    )


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"JAVA_HOME": "/nonexistent"}, "JAVA_HOME is /nonexistent, and there is no bin/java"),
        ({"PATH": "{bash alone}"}, "JAVA_HOME is not set, and there is no java on the PATH"),
    ],
)
def test_without_a_jdk_there_is_one_line_that_says_so(tmp_path: Path, environment: dict[str, str], reason: str) -> None:
    for tool in ("bash", "dirname", "ps"):  # of Spark's start script
        (tmp_path / tool).symlink_to(shutil.which(tool) or "/bin/false")
    found = {name: value.replace("{bash alone}", str(tmp_path)) for name, value in environment.items()}
    code = "import sys; from pipelines.cli import main; sys.argv = ['strandline', 'status']; main()"
    refused = ran(code, **found, STRANDLINE_LAKE__ROOT=str(tmp_path / "lake"))
    assert refused.returncode == 2, refused.stderr
    assert reason in refused.stderr.splitlines()[-1]
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(("module", "code"), [("pyspark", 2), ("pipelines.io.tables", 1)])
def test_a_wheel_without_spark_says_what_to_install(module: str, code: int) -> None:
    command = "from pipelines.cli import main; sys.argv = ['strandline', 'status']; main()"
    code_text = f"import sys; sys.modules['{module}'] = None; {command}"
    refused = ran(code_text)
    assert refused.returncode == code, refused.stderr
    assert ("Traceback" in refused.stderr) == (code == 1), "another module that is missing is a defect"
    if code == 2:
        assert refused.stderr.splitlines()[-1].startswith("strandline: pyspark is not installed")
        assert ran(code_text.replace("status", "version")).returncode == 0
