"""The log store for folders, without Spark: of several writers one creates a file, with and without hard links."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pyspark
import pytest

from strandline.io.spark.delta_jars import cached_jars
from strandline.io.spark.log_stores import JAR

_NO_LINKS = """
#include <errno.h>
int link(const char *from, const char *to) { errno = EPERM; return -1; }
int linkat(int a, const char *from, int b, const char *to, int flags) { errno = EPERM; return -1; }
"""


def without_links(folder: Path) -> dict[str, str]:
    """Return the environment of a process whose file systems have no hard links."""
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("needs a C compiler")
    library = folder / "nolinks.so"
    command = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=_NO_LINKS, text=True, check=True)
    return {"LD_PRELOAD": str(library)}


@pytest.mark.parametrize("links", [True, False], ids=["hard links", "no hard links"])
def test_of_four_writers_one_creates_a_file(tmp_path: Path, links: bool) -> None:
    jars = [JAR, *cached_jars(), *(Path(pyspark.__file__).parent / "jars").glob("*.jar")]
    environment = os.environ | {"LC_ALL": "C.UTF-8"} | ({} if links else without_links(tmp_path))
    (log := tmp_path / "log").mkdir()
    program = Path(__file__).with_name("LogStoreRaces.java")
    command = ["java", "-cp", os.pathsep.join(map(str, jars)), str(program), str(log)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert run.stdout == "0 wrong\n", run.stderr
    assert len(list(log.iterdir())) == 200, "no temporary file is left"
    assert {file.read_text()[:7] for file in log.iterdir()} == {"writer ", "replace"}
    assert (log / "0 %20ü.json").read_text() == "replaced\n"
