"""Documents whose field names are data: the table stays narrow, and every value is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lakehouse import assert_equal_to_source, land, pipeline, silver
from pymongo.database import Database
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from strandline.jobs.context import JobContext
from strandline.model.table_schemas import SCHEMA_CHANGES
from strandline.model.tables import TableName

METERS = TableName("silver", "meters")


def days(first: int, last: int) -> dict[str, Any]:
    return {f"day_{day:03}": {f"h{hour:02}": day * hour for hour in range(24)} for day in range(first, last)}


def leaf_columns(kind: T.DataType) -> int:
    if isinstance(kind, T.StructType):
        return sum(leaf_columns(field.dataType) for field in kind.fields)
    return leaf_columns(kind.elementType) if isinstance(kind, T.ArrayType) else 1


def columns_of(ctx: JobContext) -> int:
    return leaf_columns(
        T.StructType([field for field in silver(ctx, "meters").schema.fields if not field.name.startswith("_")])
    )


@pytest.mark.long
def test_a_table_of_documents_with_data_as_names_stays_narrow(
    spark: SparkSession, mongo_uri: str, database: Database[dict[str, Any]], tmp_path: Path
) -> None:
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    database.meters.insert_one({"_id": 1, "unit": "kW", "years": {"first": 2026, "hours": days(0, 365)}})
    land(ctx)
    assert columns_of(ctx) == 3
    (noon,) = (
        silver(ctx, "meters")
        .selectExpr("INT(get_json_object(CAST(years.hours AS STRING), '$.day_364.h12.$numberInt')) AS noon")
        .collect()
    )
    assert noon["noon"] == 364 * 12
    told = ctx.tables.read(SCHEMA_CHANGES).count()

    database.meters.update_one({"_id": 1}, {"$set": {"years.hours.day_000.h00": 7, "years.hours.day_365": {"h00": 1}}})
    land(ctx)
    assert columns_of(ctx) == 3
    assert ctx.tables.read(SCHEMA_CHANGES).count() == told, "new names in the data change no column"
    assert silver(ctx, "meters").where("_rescued IS NOT NULL").isEmpty()
    assert_equal_to_source(ctx, database, "meters")

    # The columns from before the document was recognised as a map stay. No more come than the limit allows.
    narrow = pipeline(spark, mongo_uri, database.name, tmp_path / "narrow")
    narrow = JobContext(
        narrow.settings.model_copy(update={"silver": narrow.settings.silver.model_copy(update={"max_columns": 60})}),
        spark,
        narrow.tables,
    )
    for through in (1, 2, 20):
        database.meters.replace_one({"_id": 1}, {"_id": 1, "unit": "kW", "hours": days(0, through)})
        land(narrow)
        assert columns_of(narrow) <= 60
    (row,) = (
        silver(narrow, "meters").selectExpr("hours.day_001.h02 AS early", "CAST(_rescued AS STRING) AS late").collect()
    )
    assert row["early"] == 2
    assert "hours.day_019" in row["late"]
    assert_equal_to_source(narrow, database, "meters")
