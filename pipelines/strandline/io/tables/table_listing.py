"""Files in any file system: list them, and remove a folder."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from strandline.io.delta_log.local_folder import LocalFolder
from strandline.io.delta_log.table_folder import LOG
from strandline.model.tables import Lake, literal, quoted

_FIRST_OR_CHECKPOINT: Final = "{00000000000000000000.json,*.checkpoint*}"
"""File patterns of which every Delta log has one: clean-up removes the first commit only below a checkpoint."""
_PATTERN: Final = re.compile(r"([*?\[\]{}\\])")


def names_under(spark: SparkSession, folder: str) -> list[str]:
    """I/O: names of the Delta tables in *folder*, which may be missing."""
    logs = files_at(spark, folder, f"*/{LOG}", _FIRST_OR_CHECKPOINT) or []
    return sorted({unquote(file.split("/")[-3]) for file in logs})


def files_at(spark: SparkSession, folder: str, pattern: str, names: str = "*") -> list[str] | None:
    """I/O: lists files with Spark, which reads none and skips hidden ones (names that begin with ``.`` or ``_``).

    Args:
        folder: Path or URI.
        pattern: Pattern below *folder* for files, or for folders whose files are listed.
        names: Pattern for names of files in such a folder.

    Returns:
        URIs of the files. None: nothing matches *pattern*.
    """
    reader = spark.read.format("text").option("pathGlobFilter", names)
    try:
        return reader.load(f"{literal_path(folder)}/{pattern}").inputFiles()
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return None


def literal_path(path: str) -> str:
    """Escape *path* for a Spark reader, which would read some characters as a pattern."""
    return _PATTERN.sub(r"\\\1", path)


def remove_folder(spark: SparkSession, path: str) -> None:
    """I/O: removes the folder *path* with its files. Spark removes a URI: as the folder of a database that is dropped.

    In a local folder the log of a table goes last. After a kill there is still a table, and the next removal finds it.

    Raises:
        PySparkException: The catalog of this Spark creates no database there.
    """
    if not Lake(root=path).in_object_store:
        LocalFolder(Path(path)).remove_all()
        return
    database = f"spark_catalog.{quoted(f'strandline_{uuid.uuid4().hex}')}"
    spark.sql(f"CREATE DATABASE {database} LOCATION {literal(path)}")
    spark.sql(f"DROP DATABASE {database}")
