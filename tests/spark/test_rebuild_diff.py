"""Comparison of a rebuilt table with the table that it replaces."""

from __future__ import annotations

from pathlib import Path

import bson
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from strandline.io.delta_log.delta_rs_query import result
from strandline.silver.rebuild_diff import Differences, differences_by_spark, differences_sql, retyped

Row = tuple[str, bool, bytes | None]
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


@pytest.mark.parametrize("engine", ["Spark", "delta-rs"])
def test_a_rebuilt_table_differs_by_missing_extra_and_changed_rows(
    spark: SparkSession, tmp_path: Path, engine: str
) -> None:
    one, other, gone = document(1), document(2), bson.encode({"n": 1})
    pairs: dict[tuple[Row | None, Row | None], str] = {
        (("5", False, one), ("5", False, one)): "",
        (("5", False, one), ("5", False, other)): "different",
        (("5", False, one), ("6", True, one)): "different",
        (("5", False, one), None): "extra",
        (None, ("5", False, one)): "missing",
        (("7:~", True, None), ("6:t", True, None)): "",  # deleted by its event and by a snapshot
        (("6:t", True, None), ("7:t", True, None)): "different",  # by two events
        (("2:t", True, None), None): "",  # purged
        (None, ("2:t", True, None)): "",
        (("2:t", True, None), ("2:t", False, gone)): "different",  # live below the watermark
    }
    rows: list[list[tuple[int, str, bool, bytes | None]]] = [[], []]
    for key, pair in enumerate(pairs):
        for side, row in zip(rows, pair, strict=True):
            side += [] if row is None else [(key, *row)]
    present, rebuilt = (silver(spark, *side) for side in rows)
    if engine == "Spark":
        found = differences_by_spark(present, rebuilt, "3")
    else:
        tables = {}
        for name, side in (("present_table", present), ("rebuilt_table", rebuilt)):
            side.write.format("delta").save(str(tmp_path / name))
            tables[name] = DeltaTable(tmp_path / name)
        found = Differences(**result(tables, differences_sql("3"))[0])
    kinds = list(pairs.values())
    expected = {kind: kinds.count(kind) for kind in ("missing", "extra", "different")}
    assert found == Differences(rows=7, **expected)


def test_a_column_is_retyped_added_or_gone() -> None:
    before, after = {"a": "int", "b": "string", "c": "int"}, {"a": "int", "b": "int", "d": "int"}
    assert retyped(before, after) == [("b", "string", "int"), ("c", "int", ""), ("d", "", "int")]
