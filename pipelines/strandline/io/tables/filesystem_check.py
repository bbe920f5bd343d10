"""Which file system a lake's root is in: this process and Spark may look at different ones."""

from __future__ import annotations

import re
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from strandline.io.delta_log.lake_folder import probe_folder, unwritable
from strandline.io.tables.table_listing import literal_path
from strandline.model.tables import Lake

_LOCAL_URI: Final = re.compile(r"file:(?://)?(?=/(?!/))")


def as_spark_sees_it(spark: SparkSession, lake: Lake) -> Lake:
    """Return *lake* with a root under which this process and Spark find the same files: a folder or a URI.

    I/O: creates the root folder, writes a file there, lets Spark look for the file, and removes the file. A folder
    that Spark does not see is removed again.

    Raises:
        ConfigurationError: The folder is one of this machine, and cannot be written.
    """
    if not lake.by_path:
        return lake
    folder = _LOCAL_URI.sub("", lake.root or "lake")
    if Lake(root=folder).in_object_store:
        return lake
    problem: OSError | None = None
    try:
        if _is_shared(spark, Path(folder).absolute()):
            return replace(lake, root=folder)
    except OSError as error:
        problem = error
    scheme = _default_scheme(spark)
    if scheme == "file:" and not is_remote():
        raise unwritable(folder, problem)
    return lake if lake.in_object_store else replace(lake, root=f"{scheme}{Path(folder).absolute()}")


def _is_shared(spark: SparkSession, root: Path) -> bool:
    return probe_folder(root, lambda probe: _qualified(spark, probe) is None)


def _default_scheme(spark: SparkSession) -> str:
    """Return Spark's default scheme and authority, such as ``file:`` or ``hdfs://namenode:8020``."""
    nowhere = f"/strandline-{uuid.uuid4().hex}"
    return (_qualified(spark, nowhere) or "file:").removesuffix(nowhere)


def _qualified(spark: SparkSession, path: str) -> str | None:
    """Return Spark's full name of a path that it does not find. None: Spark finds the path."""
    try:
        _ = spark.read.text(literal_path(path)).schema  # a remote session looks only when it is asked for the schema
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return (error.getMessageParameters() or {})["path"]
    return None
