"""Collapsing changes to one state for each key, in any order."""

from __future__ import annotations

import random
from typing import Any

import pytest
from bronze_changes import CHANGES_DDL
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from strandline.errors import ContractError
from strandline.silver.latest import latest_per_key, latest_rows, without_deleted_values

EXPECTED = (
    "_key STRING, _position STRING, _op STRING, _deleted BOOLEAN, _cluster_time TIMESTAMP, _bronze_version BIGINT, "
    "_collection_uuid STRING, "
    "_base_position STRING, base_op STRING, envelope BINARY, _inexact_because STRING, inserted BOOLEAN"
)
Row = tuple[Any, ...]


def change(key: str | None, position: str | None, op: str, document: bytes | None, version: int = 1) -> Row:
    return (
        key,
        position,
        op,
        None,
        None,
        None if document is None else len(document),
        document or b"event",
        version,
        None,
    )


def collapsed(spark: SparkSession, *changes: Row) -> DataFrame:
    return latest_per_key(spark.createDataFrame(list(changes), CHANGES_DDL))


def state(
    key: str | None,
    position: str,
    op: str,
    base: str | None,
    base_op: str | None,
    document: bytes | None,
    version: int = 1,
    *,
    inserted: bool = True,
) -> Row:
    return (key, position, op, op == "d", None, version, None, base, base_op, document, None, inserted)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([change("1", "a", "c", b"one")], state("1", "a", "c", "a", "c", b"one")),
        ([change("1", "a", "c", b"one"), change("1", "b", "u", b"two", 2)], state("1", "b", "u", "b", "u", b"two", 2)),
        # scenario: D06: delete and insert again is one upsert
        (
            [change("1", "a", "c", b"one"), change("1", "b", "d", None), change("1", "c", "c", b"new")],
            state("1", "c", "c", "c", "c", b"new"),
        ),
        # scenario: D01: a tombstone keeps the last document
        ([change("1", "a", "c", b"one"), change("1", "b", "d", None)], state("1", "b", "d", "a", "c", b"one")),
        ([change("1", "b", "d", None)], state("1", "b", "d", None, None, None, inserted=False)),
        # scenario: K10: a lookup that came back null moves the position, not the document
        ([change("1", "a", "c", b"one"), change("1", "b", "u", None)], state("1", "b", "u", "a", "c", b"one")),
        # scenario: C08: the READ is older than the event that arrived before it
        (
            [change("1", "b:82", "u", b"event"), change("1", "a:~", "r", b"read")],
            state("1", "b:82", "u", "b:82", "u", b"event", inserted=False),
        ),
        # scenario: C12: replayed rows
        (
            [change("1", "a", "c", b"one", 1), change("1", "a", "c", b"one", 5)],
            state("1", "a", "c", "a", "c", b"one", 5),
        ),
        # scenario: C14: null is a legal _id; its key is the text null, and even a missing key must not multiply
        ([change(None, "a", "c", b"one"), change(None, "b", "u", b"two")], state(None, "b", "u", "b", "u", b"two")),
    ],
)
def test_changes_collapse_to_the_newest_change_and_the_newest_document(
    spark: SparkSession, changes: list[Row], expected: Row
) -> None:
    for shuffled in (changes, changes[::-1]):
        assert_df_equality(
            collapsed(spark, *shuffled), spark.createDataFrame([expected], EXPECTED), ignore_nullable=True
        )


# scenario: C11
def test_order_batching_and_duplication_do_not_matter(spark: SparkSession) -> None:
    generator = random.Random(7)
    changes = [
        change(str(n % 5), f"{n:03}", generator.choice("cudr"), generator.choice([b"x%d" % n, None])) for n in range(60)
    ]
    messy = changes + generator.sample(changes, 30)
    generator.shuffle(messy)
    assert_df_equality(collapsed(spark, *changes), collapsed(spark, *messy).repartition(2), ignore_row_order=True)


def test_control_rows_are_no_state_and_empty_stays_empty(spark: SparkSession) -> None:
    assert collapsed(spark, change("1", "a", "ddl", None), change(None, None, "heartbeat", None)).count() == 0


def test_a_missing_column_is_refused_before_any_job(spark: SparkSession) -> None:
    with pytest.raises(ContractError, match="position"):
        latest_per_key(spark.createDataFrame([("1",)], "key STRING"))


def test_hard_deletes_keep_the_position_and_nothing_of_the_document(spark: SparkSession) -> None:
    cleared = without_deleted_values(
        collapsed(spark, change("1", "a", "c", b"one"), change("1", "b", "d", None), change("2", "a", "c", b"two"))
    )
    rows = {
        row["_key"]: row
        for row in cleared.select(
            "_key", "_position", F.col("envelope").cast("string").alias("e"), "_base_position"
        ).collect()
    }
    assert (rows["1"]["_position"], rows["1"]["e"], rows["1"]["_base_position"]) == ("b", None, None)
    assert rows["2"]["e"] == "two"


# promise 2
@pytest.mark.parametrize("extra", [0, 1, 5])
def test_a_large_batch_with_few_repeated_keys_gives_the_same_rows(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, extra: int
) -> None:
    monkeypatch.setattr("strandline.silver.latest.MAX_LISTED_KEYS", 3)
    chance = random.Random(extra)
    rows = [
        change(f"{key}", f"{chance.random():.6f}", chance.choice("crud"), chance.choice([b"a", None]))
        for key in [*range(20), *chance.choices(range(20), k=extra)]
    ]
    changes = spark.createDataFrame(rows, CHANGES_DDL)
    latest = latest_rows(changes, len(rows))
    assert_df_equality(latest.rows, latest_per_key(changes), ignore_row_order=True, ignore_nullable=True)
    repeated = {row[0] for row in rows if [other[0] for other in rows].count(row[0]) > 1}
    assert latest.count == (None if len(repeated) > 3 else 20)


def test_a_large_batch_of_distinct_keys_gives_the_same_rows(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.silver.latest.MAX_LISTED_KEYS", 3)
    rows = [change(f"{key}", "a", op, b"a" if op != "d" else None) for key, op in enumerate("crudcrud")]
    changes = spark.createDataFrame(rows, CHANGES_DDL)
    latest = latest_rows(changes, len(rows), has_distinct_keys=True)
    assert_df_equality(latest.rows, latest_per_key(changes), ignore_row_order=True, ignore_nullable=True)
    assert latest.count == len(rows)
