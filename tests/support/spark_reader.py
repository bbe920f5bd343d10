"""Reads Delta tables with the Spark and the Delta of its own Python, which has nothing of this project.

Standard input is JSON: ``{"conf": {…}, "reads": [{"path": …, "options": {…}}, …]}``. The last line of standard output
is the versions and, for each read, its rows (timestamps in microseconds) or the text of its error.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from typing import Any

from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession
from pyspark.sql import functions as F


def rows(spark: SparkSession, path: str, options: dict[str, str]) -> list[dict[str, Any]]:
    """Return every column of every row."""
    table = spark.read.format("delta").options(**options).load(path)
    columns = [
        F.expr(f"unix_micros(`{name}`)").alias(name) if kind == "timestamp" else F.col(f"`{name}`")
        for name, kind in table.dtypes
    ]
    return [row.asDict() for row in table.select(columns).collect()]


def attempt(spark: SparkSession, read: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"rows": rows(spark, **read)}
    except Exception as refused:  # noqa: BLE001  # why: the error is the answer, and each version has classes of its own
        return {"error": str(refused)}


def main() -> None:
    asked = json.load(sys.stdin)
    builder = configure_spark_with_delta_pip(SparkSession.builder.master("local[2]"))
    for key, value in asked["conf"].items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    versions = {"pyspark": version("pyspark"), "delta-spark": version("delta-spark")}
    said = {"versions": versions, "reads": [attempt(spark, read) for read in asked["reads"]]}
    sys.stdout.write(f"\n{json.dumps(said, default=str)}\n")


if __name__ == "__main__":
    main()
