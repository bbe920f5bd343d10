"""The log stores: compiled without the JARs of Spark, they are the classes that these JARs would give."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest

from hatch_build import JAR, ROOT, build_jar, compile_classes
from strandline.io.spark.delta_jars import cached_jars
from strandline.io.spark.log_stores import FOLDER_LOG_STORE, S3_LOG_STORE

CLASSES = [f"{name.replace('.', '/')}.class" for name in (FOLDER_LOG_STORE, S3_LOG_STORE)]


def test_the_stubs_give_the_same_classes_as_the_real_jars(tmp_path: Path) -> None:
    jars = [*cached_jars(), *(Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")]
    javac = shutil.which("javac")
    assert javac
    # why no -Xlint: the real JARs name annotations that are not there
    compile_classes(javac, tmp_path, ["-cp", os.pathsep.join(map(str, jars)), "-Xlint:none"])
    assert build_jar(tmp_path / "built.jar")
    with zipfile.ZipFile(tmp_path / "built.jar") as built:
        assert built.namelist() == CLASSES
        assert [built.read(name) for name in CLASSES] == [(tmp_path / name).read_bytes() for name in CLASSES]


def test_the_installed_jar_is_that_of_the_sources(tmp_path: Path) -> None:
    assert build_jar(tmp_path / "built.jar")
    assert (ROOT / JAR).read_bytes() == (tmp_path / "built.jar").read_bytes(), "run make setup"


def test_without_a_compiler_there_is_no_jar_and_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    code = "import hatch_build, pathlib, sys; hatch_build.build_jar(pathlib.Path(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(tmp_path / "j")]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, cwd=ROOT).stderr
    assert said.startswith("strandline: no javac")
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "j").exists()
