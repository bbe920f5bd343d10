"""Bronze as people read it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import bson
import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession

from strandline.bronze.chunk_rows import ChunkStamp, manifest_table, read_table
from strandline.bronze.envelope import Batch, BatchEnd, Stamp, stream_table
from strandline.bronze.json_view import with_json
from strandline.io.spark.arrow_functions import column_function, through_pandas
from strandline.io.tables.ddl import schema_of
from strandline.model.table_schemas import BRONZE_DDL

STAMP = Stamp("shop", "run-1", 1_700_000_000_000_000)
CHUNK = ChunkStamp(STAMP, "s1", 3, "shop", "orders", "ab", 1000, 5)
EVENT = {
    "_id": {"_data": "8201"},
    "operationType": "update",
    "clusterTime": bson.Timestamp(1000, 1),
    "ns": {"db": "shop", "coll": "orders"},
    "documentKey": {"_id": 1},
    "fullDocument": {"_id": 1, "price": bson.Decimal128("1.10")},
    "updateDescription": {
        "updatedFields": {"price": bson.Decimal128("1.10")},
        "removedFields": ["old"],
        "truncatedArrays": [],
    },
}
BROKEN = bson.encode(EVENT | {"fullDocument": {"_id": 1, "t": "XXXX"}}).replace(b"XXXX", b"\xff\xfe\xfd\xfc")


def bronze(spark: SparkSession, stored: bool) -> DataFrame:
    events = [bson.encode(EVENT), bson.encode(EVENT | {"operationType": "delete", "fullDocument": None}), BROKEN]
    tables = [
        stream_table(Batch(1, events, BatchEnd("{}", None), STAMP, stored)),
        read_table([bson.encode({"_id": 2, "a": None})], replace(CHUNK), stored_json=stored),
        manifest_table(CHUNK, "chunk", '{"count": 1}'),
    ]
    frames = [spark.createDataFrame(table, schema=schema_of(BRONZE_DDL)) for table in tables]
    return frames[0].union(frames[1]).union(frames[2])


def test_derived_columns_are_what_capture_would_have_stored(spark: SparkSession) -> None:
    stored = bronze(spark, stored=True)
    assert stored.where("after IS NOT NULL").count() == 3
    assert_df_equality(
        with_json(bronze(spark, stored=False)),
        stored,
        ignore_row_order=True,
        ignore_nullable=True,
        ignore_metadata=True,
    )
    assert_df_equality(with_json(stored), stored, ignore_row_order=True, ignore_nullable=True, ignore_metadata=True)


@pytest.mark.parametrize("make", [column_function, through_pandas])
def test_functions_over_arrow_give_the_same_in_every_spark(spark: SparkSession, make: Any) -> None:
    rows = spark.createDataFrame([("u", b"ab"), ("d", None), (None, b"")], "op STRING, envelope BINARY")

    def parts(op: pa.Array, envelope: pa.Array) -> pa.Array:
        inner = [None if one is None else [{"name": one}] for one in op.to_pylist()]
        lists = pa.array(inner, pa.list_(pa.struct([("name", pa.string())])))
        return pa.StructArray.from_arrays([op, pa.array(envelope.to_pylist(), pa.binary()), lists], ["o", "e", "l"])

    def sizes(envelope: pa.Array) -> pa.Array:
        return pa.array([None if one is None else str(len(one)) for one in envelope.to_pylist()], pa.string())

    of_rows = make(parts, "struct<o: STRING, e: BINARY, l: ARRAY<STRUCT<name: STRING>>>")
    of_values = make(sizes, "string")
    found = rows.select(of_rows("op", "envelope").alias("r"), of_values("envelope").alias("n")).selectExpr(
        "r.o", "hex(r.e)", "r.l[0].name", "n"
    )
    assert {tuple(row) for row in found.collect()} == {
        ("u", "6162", "u", "2"),
        ("d", None, "d", None),
        (None, "", None, "0"),
    }


def test_a_query_that_reads_no_json_does_not_pay_for_it(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    readable = with_json(bronze(spark, stored=False)).where("op = 'u'")
    readable.select("after").explain()
    assert "ArrowEvalPython" in capsys.readouterr().out
    readable.select("position", "envelope").explain()
    assert "ArrowEvalPython" not in capsys.readouterr().out
