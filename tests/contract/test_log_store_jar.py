"""The log store for S3: compiled without the JARs of Spark, it is the class that these JARs would give."""

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
from strandline.io.delta_jars import cached_jars
from strandline.io.s3_session import LOG_STORE

CLASS = f"{LOG_STORE.replace('.', '/')}.class"


def test_the_stubs_give_the_same_class_as_the_real_jars(tmp_path: Path) -> None:
    jars = [*cached_jars(), *(Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")]
    javac = shutil.which("javac")
    assert javac
    # why no -Xlint: the real JARs name annotations that are not there
    compile_classes(javac, tmp_path, ["-cp", os.pathsep.join(map(str, jars)), "-Xlint:none"])
    assert build_jar(tmp_path / "built.jar")
    with zipfile.ZipFile(tmp_path / "built.jar") as built:
        assert built.namelist() == [CLASS]
        assert built.read(CLASS) == (tmp_path / CLASS).read_bytes()


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
