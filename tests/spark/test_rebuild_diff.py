"""Comparisons of `reconcile` and `rebuild` on DataFrames."""

from __future__ import annotations

import bson
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession

from strandline.model.range_digest import RangeDigest, digest
from strandline.silver.rebuild_diff import changed_rows, retyped
from strandline.silver.reconcile_diff import WAITING_RANGE, differences, silver_documents, silver_sums

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


# scenario: T08
def test_only_differing_ranges_are_compared_and_rows_that_changed_since_are_left_out(spark: SparkSession) -> None:
    rows = silver(
        spark,
        (1, "5", False, document(1)),
        (2, "5", False, document(2, v=1)),
        (3, "9", False, document(3)),  # changed after the read
        (4, "9", True, document(4)),  # deleted after the read
        (5, "5", False, None),  # has no document yet
        (6, "5", True, document(6)),
        (11, "5", False, document(11)),
    )
    bounds = [document(10)]
    sums = {
        row["number"]: RangeDigest.from_parts(row["documents"], row["parts"])
        for row in silver_sums(rows.repartition(3), bounds, ["7", "7"]).collect()
    }
    assert sums == {
        0: RangeDigest.of([document(1), document(2, v=1)]),
        1: RangeDigest.of([document(11)]),
        WAITING_RANGE: RangeDigest.of([b""]),
    }

    there = [document(number) for number in (1, 2, 3, 4, 7)]
    source = spark.createDataFrame(
        [(str(bson.decode(raw)["_id"]), bson.encode({"_id": bson.decode(raw)["_id"]}), digest(raw)) for raw in there],
        "key STRING, identifier BINARY, digest BINARY",
    )
    found = differences(source, silver_documents(rows, bounds, [0], "7"))
    expected = [("2", "different", document(2), "5"), ("5", "extra", None, "5"), ("7", "missing", document(7), None)]
    assert_df_equality(
        found,
        spark.createDataFrame(expected, "key STRING, kind STRING, identifier BINARY, position STRING"),
        ignore_row_order=True,
        ignore_nullable=True,
    )


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
