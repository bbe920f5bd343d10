"""Versions of Spark: the packages that belong to each, and one line for a Spark that is not supported."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pyspark
import pytest
from packaging.requirements import Requirement

from scripts.spark_environment import with_another_spark
from strandline.errors import ConfigurationError
from strandline.io.spark.spark_versions import (
    HADOOP_WITHOUT_CONDITIONAL_PUT,
    SDK_OF_HADOOP,
    SUPPORTED,
    check_version,
    delta_package,
    minor_of,
    packages_folder,
    refuse_native_tables,
    refuse_old_spark,
)

ROOT = Path(__file__).parents[2]
EXTRA = {
    Requirement(line).name: Requirement(line)
    for line in tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]["spark"]
}


@pytest.mark.parametrize("version", ["4.0.0", "4.0.5", "4.1.1", "4.2.0", "4.2.1"])
def test_a_spark_gets_the_delta_that_is_published_for_it(version: str) -> None:
    minor = minor_of(version)
    assert delta_package(version) == f"io.delta:delta-spark_{minor}_2.13:{SUPPORTED[minor].delta}"


@pytest.mark.parametrize("version", ["4.3.0", "5.0.0", "unknown"])
def test_a_spark_without_a_delta_is_one_line(version: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        delta_package(version)
    assert str(refused.value) == (
        f"no Delta is known for Spark {version} (supported: 4.0, 4.1, 4.2) → pip install 'pyspark>=4.0.1,<4.3', or name"
        " a Delta for it in spark.jars.packages of spark.conf"
    )


@pytest.mark.parametrize("version", ["3.5.9", "3.5.0", "2.4.8"])
def test_a_spark_without_variant_is_one_line(version: str) -> None:
    for refuse in (delta_package, refuse_old_spark, check_version):
        with pytest.raises(
            ConfigurationError, match=rf"Spark {version} is too old: it has no type VARIANT.* → use Spark"
        ):
            refuse(version)


def test_native_tables_are_refused_where_they_cannot_be_read() -> None:
    for version in ("4.1.0", "4.2.0", "4.9.0"):
        refuse_native_tables(version)
    with pytest.raises(ConfigurationError, match=r"Spark 4\.0\.5 cannot read a native silver table.* → use Spark 4\.1"):
        refuse_native_tables("4.0.5")


def test_a_newer_spark_of_a_platform_is_logged_and_used(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "strandline.session"):
        check_version("4.2.7")
        assert not caplog.records
        check_version("4.9.0")
    assert [record.getMessage() for record in caplog.records] == [
        "Spark 4.9.0 is newer than the tested versions (4.0, 4.1, 4.2)"
    ]


def test_the_extra_admits_every_supported_spark_and_no_other() -> None:
    spark, delta = EXTRA["pyspark"].specifier, EXTRA["delta-spark"].specifier
    assert all(f"{minor}.9" in spark for minor in SUPPORTED)
    assert [version for version in ("3.5.9", "4.3.0", "5.0.0") if version in spark] == []
    assert all(packages.delta in delta for packages in SUPPORTED.values())


def test_an_environment_differs_in_its_spark_only() -> None:
    locked = "a==1 \\\n    --hash=x\npyspark==4.2.0 \\\n    --hash=y\n    # via delta\nz==2 \\\n    --hash=z\n"
    spark = "# made by\npyspark==4.0.5 \\\n    --hash=n\n"
    assert with_another_spark(locked, spark).splitlines() == [
        "a==1 \\",
        "    --hash=x",
        "z==2 \\",
        "    --hash=z",
        "pyspark==4.0.5 \\",
        "    --hash=n",
    ]


def test_every_hadoop_of_a_supported_spark_is_known_for_s3() -> None:
    for packages in SUPPORTED.values():
        assert (packages.hadoop in SDK_OF_HADOOP) != (packages.hadoop in HADOOP_WITHOUT_CONDITIONAL_PUT)


def test_the_installed_spark_has_the_hadoop_of_the_table() -> None:
    (hadoop,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    assert hadoop.stem == f"hadoop-client-api-{SUPPORTED[minor_of(pyspark.__version__)].hadoop}"


def test_jars_of_another_spark_or_delta_are_in_another_folder() -> None:
    folders = {packages_folder(version) for version in ("4.1.3", "4.1.4", "4.2.0", "4.3.0")}
    assert len(folders) == 4


def ran(folder: Path, version: str, broken: str) -> subprocess.CompletedProcess[str]:
    """Run a command that needs Spark, in a process whose PySpark claims another version, or lacks a module."""
    lacks = f"sys.modules[{broken!r}] = None\n" if broken else ""
    (folder / "sitecustomize.py").write_text(f"import sys, pyspark\npyspark.__version__ = {version!r}\n{lacks}")
    env = {name: value for name, value in os.environ.items() if not name.startswith(("STRANDLINE", "SPARK", "JAVA"))}
    env |= {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT / 'pipelines'}", "STRANDLINE_LAKE__ROOT": str(folder / "lake")}
    return subprocess.run(
        [sys.executable, "-m", "strandline.cli", "gold"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=folder,
        env=env | {"JAVA_HOME": "/there/is/no/JVM", "STRANDLINE_SOURCE__NAME": "shop"},
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "broken", "told"),
    [
        ("4.3.0", "", "no Delta is known for Spark 4.3.0"),
        ("3.5.9", "", "Spark 3.5.9 is too old"),
        ("3.5.9", "pyspark.logger", "Spark 3.5.9 is too old"),  # Spark 3.5 has no such module
    ],
)
def test_an_unsupported_spark_ends_a_command_with_one_line_and_nothing_written(
    tmp_path: Path, version: str, broken: str, told: str
) -> None:
    ended = ran(tmp_path, version, broken)
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.splitlines()[-1].startswith(f"strandline: {told}")
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "lake").exists()
