"""VARIANT columns in a table like silver's: Delta's support, and Spark's limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline.io.spark.spark_versions import minor_of
from strandline.io.tables.ddl import schema_of
from strandline.io.tables.increments import feed
from strandline.io.tables.spark_tables import Tables
from strandline.model.tables import TableName
from strandline.silver.compatibility import properties_of

pytestmark = pytest.mark.skipif(
    minor_of(pyspark.__version__) == "4.0", reason="Spark 4.0 cannot read such tables, and Strandline refuses them"
)

VALUES = [
    '{"$numberDecimal":"1.10"}',
    '{"$numberDouble":"-0.0"}',
    '[{"$numberLong":"9007199254740993"},null,"x"]',
    '{"a.b":{"":"ü"}}',
]


@pytest.fixture
def table(tables: Tables) -> TableName:
    """Table of four rows in one file: one row deleted, one replaced."""
    name = TableName("silver", "v")
    tables.create(
        name,
        schema_of("_key STRING, _position STRING, v VARIANT"),
        properties=properties_of("native"),
        cluster_by=("_key",),
    )
    rows = tables.spark.createDataFrame(list(enumerate(VALUES)), "n INT, v STRING").coalesce(1)
    tables.append(
        name,
        rows.select(
            F.col("n").cast("string").alias("_key"), F.lit("p").alias("_position"), F.parse_json("v").alias("v")
        ),
    )
    tables.delete(name, "_key = '1'")
    tables.update(name, {"_position": "'q'"}, "_key = '0'")
    assert list(Path(tables.lake.path(name)).rglob("deletion_vector*"))
    return name


def values(rows: DataFrame) -> dict[str, str]:
    return {row["_key"]: row["v"] for row in rows.select("_key", F.to_json("v").alias("v")).collect()}


# scenario: S04
def test_variant_values_stay_unchanged_beside_deleted_rows(tables: Tables, table: TableName, tmp_path: Path) -> None:
    expected = {str(number): VALUES[number] for number in (0, 2, 3)}
    assert values(tables.read(table)) == expected
    changed = feed(tables, table, 1, tables.version(table))
    assert values(changed.where("_change_type = 'insert'")) == dict(zip("0123", VALUES, strict=True))
    assert values(changed.where("_change_type = 'delete'")) == {"1": VALUES[1]}
    assert values(changed.where("_change_type = 'update_postimage'")) == {"0": VALUES[0]}

    rows = tables.spark.readStream.format("delta").load(tables.lake.path(table))
    stream = (
        rows.writeStream.format("delta")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    stream.start(str(tmp_path / "copy")).awaitTermination()
    assert values(tables.spark.read.format("delta").load(str(tmp_path / "copy"))) == expected


# scenario: S05
def test_a_variant_is_compared_as_text_or_by_its_row_s_key(tables: Tables, table: TableName) -> None:
    rows = tables.read(table)
    for refused in (
        lambda: rows.select("v").distinct(),
        lambda: rows.groupBy("v").count(),
        lambda: rows.orderBy("v"),
        lambda: rows.where("v = v"),
        lambda: rows.alias("a").join(rows.alias("b"), F.col("a.v") == F.col("b.v")),
    ):
        with pytest.raises(AnalysisException):
            refused().collect()
    with pytest.raises(AnalysisException):
        tables.create(TableName("silver", "by_variant"), rows.schema, cluster_by=("v",))
    assert rows.union(rows).select(F.to_json("v").alias("v")).distinct().count() == 3
    assert rows.union(rows).dropDuplicates(["_key"]).count() == 3


# scenario: S07: the table needs a feature that this Spark does not know, as VARIANT is unknown to Spark 3
def test_a_reader_that_does_not_know_a_feature_says_so_and_shows_nothing(tables: Tables, table: TableName) -> None:
    assert {"variantType", "columnMapping", "deletionVectors"} <= set(tables.detail(table)["tableFeatures"])
    log, version = Path(tables.lake.path(table)) / "_delta_log", tables.version(table)
    (created,) = (line for line in actions(log / f"{0:020d}.json") if "protocol" in line)
    for known in ("readerFeatures", "writerFeatures"):
        created["protocol"][known].append("variantOfTomorrow")
    (log / f"{version + 1:020d}.json").write_text(json.dumps(created), encoding="utf-8")
    with pytest.raises(Exception, match=r"DELTA_UNSUPPORTED_FEATURES_FOR_READ.*variantOfTomorrow"):
        tables.read(table).collect()


def actions(commit: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in commit.read_text(encoding="utf-8").splitlines()]
