"""A large batch in two MERGEs gives the same table as one MERGE. A batch with READs is not split."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import bson
import pytest
from bronze_changes import CHANGES_DDL
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from strandline.io.tables.spark_tables import Tables
from strandline.model.merge_rule import Merged
from strandline.model.shape import Shape
from strandline.model.tables import TableName
from strandline.silver.batch_profile import profile_batch
from strandline.silver.decode.rows import typed_rows
from strandline.silver.key_filter import Keys
from strandline.silver.latest import latest_per_key
from strandline.silver.schema.evolution import SchemaChange
from strandline.silver.silver_table import SilverTable
from strandline.silver.split_merge import MergePart, count_between, is_dense, merge_in_parts, split_changes

_SHAPE = Shape("struct", fields={"v": Shape("long")})

Row = tuple[str | None, str, str, None, None, int | None, bytes, int, None]
Table = Callable[[str], SilverTable]


def change(key: str | None, position: str, op: str, value: int | None = None) -> Row:
    document = {"_id": key, "v": value}
    event = {"operationType": "update"} if value is None else {"operationType": "replace", "fullDocument": document}
    return (
        key,
        position,
        op,
        None,
        None,
        None if value is None else len(bson.encode(document)),
        bson.encode(event),
        0,
        None,
    )


OLD = (change("a", "1", "c", 1), change("b", "1", "c", 2), change("m", "1", "c", 3))


@pytest.fixture(autouse=True)
def _two_are_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.silver.split_merge.MIN_KEYS_FOR_SPLIT", 3)


@pytest.fixture
def made(tables: Tables) -> Table:
    """Return a function that creates a silver table with the rows of `OLD`."""

    def make(name: str) -> SilverTable:
        table = SilverTable(tables, TableName("silver", name))
        table.open(f"db.{name}", "test")
        table.change_schema(_SHAPE, [SchemaChange(("v",), "", "BIGINT")], before=Shape("struct"))
        assert whole(table, OLD).inserted == 3
        return table

    return make


def frame(spark: SparkSession, changes: Sequence[Row]) -> DataFrame:
    return spark.createDataFrame(list(changes), CHANGES_DDL)


def typed(state: DataFrame) -> DataFrame:
    return typed_rows(state, _SHAPE, "portable")


def whole(table: SilverTable, changes: Sequence[Row]) -> Merged:
    rows = frame(table.tables.spark, changes)
    return table.merge(typed(latest_per_key(rows)), keys=profile_batch(rows, max_depth=8).keys, deletes="soft")


def by_parts(table: SilverTable, changes: Sequence[Row]) -> Merged:
    rows = frame(table.tables.spark, changes)
    merge_parts = split_changes(rows, columns=1, tables_at_once=1)
    assert merge_parts
    return merge_in_parts(table, merge_parts, latest_per_key(rows), typed, deletes="soft")


def content(table: SilverTable) -> DataFrame:
    return table.tables.read(table.name).withColumn("_rescued", F.col("_rescued").cast("string")).orderBy("_key")


def merge_parts(spark: SparkSession, *changes: Row, columns: int = 1, at_once: int = 1) -> list[MergePart]:
    return split_changes(frame(spark, changes), columns=columns, tables_at_once=at_once)


def test_a_key_with_an_insert_goes_to_the_first_merge_and_all_others_to_the_second(
    spark: SparkSession,
) -> None:
    changes = [change("n", "2", "c", 1), change("n", "3", "u", 2), change("z", "3", "d"), change("z", "2", "c", 4)]
    changes += [change("m", "2", "u"), change("b", "2", "u", 5), change("b", "3", "d")]
    assert merge_parts(spark, *changes) == [
        MergePart(True, Keys(bounds=("n", "z")), 2),
        MergePart(False, Keys(bounds=("b", "m")), 2),
    ]


def test_only_many_changes_of_the_stream_are_parted(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.silver.key_filter.MAX_LISTED_KEYS", 1)
    some = [change("b", "2", "u", 1), change("c", "2", "u", 1)]
    assert profile_batch(frame(spark, some), max_depth=8).keys.is_stream_only
    for unsure in (
        change("q", "2", "r", 1),
        change(None, "2", "u", 1),
    ):  # a READ may be of what is there, or of what is new
        assert not profile_batch(frame(spark, [*some, unsure]), max_depth=8).keys.is_stream_only
    assert not profile_batch(frame(spark, [change("b" * 300, "2", "u", 1)]), max_depth=8).keys.is_stream_only


def test_few_keys_are_not_worth_two_commits(spark: SparkSession) -> None:
    both = [change("a", "2", "u", 1), change("n", "2", "c", 1)]
    assert merge_parts(spark, *both) == []
    assert len(merge_parts(spark, both[0])) == 1
    assert len(merge_parts(spark, *both, change("b", "2", "u", 1))) == 2


@pytest.mark.parametrize(("held", "dense"), [(0, False), (49, False), (50, True), (200, True), (201, False)])
def test_one_merge_takes_a_batch_that_changes_most_of_what_it_meets(
    spark: SparkSession, held: int, dense: bool
) -> None:
    between = spark.range(held).select(F.col("id").cast("string").alias("_key"))
    assert is_dense(count_between(between, changes=100), changes=100) is dense


# promise 2
def test_keys_that_the_table_lacks_are_inserted_and_a_rival_s_row_is_then_merged(
    made: Table,
) -> None:
    one = made("t_missing")
    rows = frame(one.tables.spark, [change(key, "9", "r", 1) for key in "xyz"])
    part = MergePart(None, Keys(bounds=("x", "z")), 3)
    assert merge_in_parts(one, [part], latest_per_key(rows), typed, deletes="soft").inserted == 3
    newer = frame(one.tables.spark, [change("x", "9a", "r", 2), change("w", "9", "r", 3)])
    part = MergePart(None, Keys(bounds=("w", "x")), 2)
    merged = merge_in_parts(one, [part], latest_per_key(newer), typed, deletes="soft")
    assert (merged.inserted, merged.updated) == (1, 1)


def test_broadcast_rows_are_bounded_over_all_parallel_merges(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted, inserted = (
        [change("a", "2", "d"), change("b", "2", "d")],
        [change("n", "2", "c", 1), change("o", "2", "c", 1)],
    )
    monkeypatch.setattr("strandline.silver.split_merge.BROADCAST_BYTES", 4 * 600)
    assert len(merge_parts(spark, *deleted, *inserted, at_once=1)) == 2
    assert len(merge_parts(spark, *deleted, *inserted, at_once=2)) == 2
    assert merge_parts(spark, *deleted, *inserted, at_once=3) == [], "a row without a document takes its room, too"
    assert merge_parts(spark, *deleted, *inserted, columns=400) == [], "and so does a column without a value"
    assert len(merge_parts(spark, *inserted, columns=400)) == 1, "it goes to no task as a whole"


# promise 2; scenario: C12
@pytest.mark.long
def test_two_merges_make_the_same_table_as_one_also_for_rows_in_the_wrong_part(made: Table) -> None:
    once, twice = made("once"), made("twice")

    def merged(*changes: Row) -> tuple[Merged, int]:
        """Merge in parts; return row counts and number of commits. Checks that one MERGE gives the same table."""
        before = twice.tables.version(twice.name)
        found = by_parts(twice, changes)
        assert found == whole(once, changes)
        assert_df_equality(content(once), content(twice))
        return found, twice.tables.version(twice.name) - before

    usual = [change("n", "2", "c", 10), change("n", "3", "u", 11), change("z", "2", "c", 12), change("z", "3", "d")]
    usual += [change("a", "2", "u", 13), change("b", "2", "d"), change("m", "2", "u")]
    assert merged(*usual) == (Merged(inserted=2, updated=3, deleted=0), 2)
    assert merged(*usual)[0] == Merged(0, 0, 0), "a batch that is repeated"
    assert merged(change("b", "4", "c", 20), change("y", "4", "c", 21)) == (Merged(1, 1, 0), 2), (
        "b was deleted: its tombstone is there"
    )
    assert merged(change("a", "5", "u", 22), change("b", "0", "u", 23), change("x", "5", "d")) == (
        Merged(1, 1, 0),
        2,
    ), "x is not there"
