"""A streamed batch is the same rows, wherever it is parsed."""

from __future__ import annotations

import bson
import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession

from strandline.bronze.envelope import Batch, BatchEnd, Stamp
from strandline.bronze.stream_rows import stream_rows

STAMP = Stamp("shop", "run-1", 1_700_000_000_000_000)


def event(number: int) -> bytes:
    return bson.encode(
        {
            "_id": {"_data": f"82{number:08X}"},
            "operationType": "insert",
            "clusterTime": bson.Timestamp(1000, number),
            "ns": {"db": "shop", "coll": "orders"},
            "documentKey": {"_id": number},
            "fullDocument": {"_id": number, "text": "x" * number},
        }
    )


def batch(spark: SparkSession, count: int) -> DataFrame:
    events = [event(number) for number in range(count)]
    with stream_rows(spark, Batch(7, events, BatchEnd('{"_data": "82FF"}', "s1"), STAMP, stored_json=True)) as rows:
        return spark.createDataFrame(rows.collect(), rows.schema)


# scenario: B10
@pytest.mark.parametrize("events_per_slice", [7, 50, 1000])
def test_executors_parse_what_the_driver_would(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, events_per_slice: int
) -> None:
    here = batch(spark, 50)
    monkeypatch.setattr("strandline.bronze.stream_rows.PARSED_HERE", 0)
    monkeypatch.setattr("strandline.bronze.stream_rows.SLICE", events_per_slice)
    assert_df_equality(batch(spark, 50), here, ignore_row_order=True)
    (token,) = batch(spark, 50).where("resume_token IS NOT NULL").select("position", "snapshot_id").collect()
    assert tuple(token) == ("000003e800000031:8200000031", "s1")
