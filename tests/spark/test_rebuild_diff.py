"""Comparison of a rebuilt table with the table that it replaces."""

from __future__ import annotations

import bson
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession

from strandline.silver.rebuild_diff import changed_rows, retyped

SILVER = (
    "_key STRING, _position STRING, _base_position STRING, _op STRING, _deleted BOOLEAN, _collection_uuid STRING, "
    "_exact BOOLEAN, _pending ARRAY<STRUCT<position: STRING, patch: BINARY>>, _document BINARY"
)


def document(number: int, **more: int) -> bytes:
    return bson.encode({"_id": number, **more})


def silver(spark: SparkSession, *rows: tuple[int, str, bool, bytes | None]) -> DataFrame:
    whole = [
        (str(key), position, None if raw is None else position, "u", deleted, None, True, None, raw)
        for key, position, deleted, raw in rows
    ]
    return spark.createDataFrame(whole, SILVER)


def test_a_rebuilt_table_differs_by_missing_extra_and_changed_rows(spark: SparkSession) -> None:
    present, rebuilt = [(1, "5", False, document(1))], [(1, "5", False, document(1))]
    present += [(2, "5", False, document(2)), (3, "5", False, document(3))]
    rebuilt += [(2, "6", True, document(2)), (4, "5", False, document(4))]
    # 5: deleted by its event and by a snapshot; 6: by two events; 7, 8: purged or not; 9: live below the watermark
    present += [(5, "7:~", True, None), (6, "6:t", True, None), (7, "2:t", True, None), (9, "2:t", True, None)]
    rebuilt += [(5, "6:t", True, None), (6, "7:t", True, None), (8, "2:t", True, None), (9, "2:t", False, document(9))]
    kinds = [*((key, "different") for key in "269"), ("3", "extra"), ("4", "missing")]
    expected = spark.createDataFrame(kinds, "_key STRING, kind STRING")
    found = changed_rows(silver(spark, *present), silver(spark, *rebuilt), purge_watermark="3")
    assert_df_equality(found, expected, ignore_row_order=True, ignore_nullable=True)
    before, after = (
        spark.createDataFrame([], "a INT, b STRING, c INT").schema,
        spark.createDataFrame([], "a INT, b INT, d INT").schema,
    )
    assert retyped(before, after) == [("b", "string", "int"), ("c", "int", ""), ("d", "", "int")]
