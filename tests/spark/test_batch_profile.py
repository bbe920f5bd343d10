"""The batch profile: census, keys and patches of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import bson
import pyarrow as pa
import pytest
from bronze_changes import CHANGES_DDL
from pyspark.sql import SparkSession

from strandline.silver.batch_profile import BatchProfile, profile_batch
from strandline.silver.key_filter import Keys

Row = tuple[Any, ...]


def row(key: str | None, op: str, document: dict[str, Any] | None = None, **event: Any) -> Row:
    envelope = (
        bson.encode(document or {})
        if op == "r"
        else bson.encode(event | ({"fullDocument": document} if document else {}))
    )
    return (key, "1", op, None, None, None if document is None else len(bson.encode(document)), envelope, 0, None)


INSERT, READ = row("a", "c", {"_id": 1, "n": 2}), row("c", "r", {"_id": 3, "t": "x"})
PATCH = row("b", "u", updateDescription={"updatedFields": {"hidden": 1}})
DELETE = row("a", "d", fullDocumentBeforeChange={"before": 1})


def profiled(spark: SparkSession, *rows: Row, parts: int = 1) -> BatchProfile:
    changes = spark.createDataFrame(list(rows), CHANGES_DDL)
    return profile_batch(changes.coalesce(1) if parts == 1 else changes.repartition(parts), max_depth=8)


@pytest.mark.parametrize("parts", [1, 3])
def test_documents_keys_and_patches_are_found_in_one_look(spark: SparkSession, parts: int) -> None:
    found = profiled(spark, INSERT, READ, PATCH, DELETE, parts=parts)
    assert sorted(found.census.fields) == ["_id", "n", "t"]  # no fields of patches or deletes
    assert found.census.fields["_id"].types == {"int"}
    assert found.keys == Keys(("a", "b", "c"))
    assert found.holds_patches


def test_rows_that_are_no_changes_do_not_count_in_a_profile(spark: SparkSession) -> None:
    control = row("z", "ddl", {"renamed": 1})
    assert profiled(spark, control).keys == profiled(spark).keys == Keys()
    assert profiled(spark, control).census.fields == {}
    assert not profiled(spark, INSERT, DELETE, control).holds_patches


def test_a_row_without_a_key_leaves_any_key_possible(spark: SparkSession) -> None:
    assert profiled(spark, INSERT, row(None, "u", {"_id": 5})).keys == Keys()


def test_documents_that_are_unlike_the_others_of_their_batch_are_counted(spark: SparkSession) -> None:
    alike = [row(str(number), "r", {"_id": number}) for number in range(50)]
    odd = row("x", "r", {"_id": 1, "own": bson.Regex("x")})
    found = profiled(spark, *alike, odd)
    assert (found.changes, found.alone) == (51, 1)
    assert profiled(spark, INSERT, odd).alone == 2


@pytest.mark.parametrize(("keys", "distinct"), [("abc", True), ("aba", False), ("aa", False)])
def test_a_profile_knows_that_no_key_repeats(spark: SparkSession, keys: str, *, distinct: bool) -> None:
    assert profiled(spark, *(row(key, "r", {"_id": key}) for key in keys)).has_distinct_keys == distinct


def test_large_documents_reach_python_in_batches_of_a_few_megabytes(spark: SparkSession) -> None:
    if not spark.conf.isModifiable("spark.sql.execution.arrow.maxBytesPerBatch"):
        pytest.skip("this version of Spark has no such setting")

    def sizes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.record_batch({"rows": [len(batch)]})

    rows = spark.range(0, 30, 1, 1).selectExpr("repeat('x', 1000000) AS text")
    found = [row["rows"] for row in rows.mapInArrow(sizes, "rows BIGINT").collect()]
    assert sum(found) == 30
    assert max(found) <= 9
