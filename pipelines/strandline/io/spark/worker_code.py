"""The program's own code for the executors of a cluster: one zip file, sent once for each session.

Executors unpickle functions by the names of their modules, so they must have this package, in this version. They also
need the packages that its functions import: pyarrow, pymongo and bsonjs.
"""

from __future__ import annotations

import py_compile
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

import strandline
from strandline.io.spark.platform import is_databricks
from strandline.io.spark.session_settings import setting

_PACKAGE: Final = Path(strandline.__file__).parent
_ZIP: Final = f"strandline-{strandline.__version__}.zip"


def ship_code(session: SparkSession) -> None:
    """Send this package to the executors. It goes before a copy that is installed there.

    Nothing is sent if the executors are threads of the driver, or on Databricks, which installs the wheel.

    I/O: writes a zip file into a temporary folder of this process; registers it with the session.
    """
    if _has_code(session):
        return
    file = str(Path(_folder_with_zip().name) / _ZIP)
    if is_remote():
        session.addArtifacts(file, pyfile=True)
        return
    path = list(sys.path)
    session.sparkContext.addPyFile(file)
    sys.path[:] = path  # addPyFile puts the zip there, too: this process has the package already


def _has_code(session: SparkSession) -> bool:
    is_local = not is_remote() and (setting(session.conf, "spark.master") or "local").startswith("local")
    return is_local or is_databricks(session)


@cache
def _folder_with_zip() -> tempfile.TemporaryDirectory[str]:
    """Return the folder. It exists until this process ends: executors that start later fetch the zip, too."""
    folder = tempfile.TemporaryDirectory(prefix="strandline-code-")
    write_zip(Path(folder.name) / _ZIP)
    return folder


def write_zip(file: Path) -> None:
    """Write the package into *file*: sources, compiled modules and data files. The same package gives the same bytes.

    Compiled modules save each Python worker from compiling all modules that it imports. A worker with another minor
    version of Python ignores them.
    """
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as target, tempfile.TemporaryDirectory() as compiled:
        for source in sorted(_PACKAGE.rglob("*")):
            if not source.is_file() or source.parent.name == "__pycache__":
                continue
            name = str(Path(_PACKAGE.name) / source.relative_to(_PACKAGE))
            target.writestr(zipfile.ZipInfo(name), source.read_bytes(), zipfile.ZIP_DEFLATED)
            if source.suffix == ".py":
                bytecode = Path(compiled) / "module.pyc"
                unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
                py_compile.compile(
                    str(source), cfile=str(bytecode), dfile=name, doraise=True, invalidation_mode=unchecked
                )
                target.writestr(zipfile.ZipInfo(f"{name}c"), bytecode.read_bytes(), zipfile.ZIP_DEFLATED)
