"""A large batch in two MERGEs: the same table as by one, and none where a row may be on either side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import bson
import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.io.merge import Merged
from pipelines.io.tables import Tables
from pipelines.model.shape import Shape
from pipelines.model.tables import TableName
from pipelines.silver.halves import Half, halves_of, merge_by_halves
from pipelines.silver.keys import Keys, keys_of
from pipelines.silver.latest import latest_per_key
from pipelines.silver.rows import typed_rows
from pipelines.silver.schema import SchemaChange
from pipelines.silver.writer import SilverTable

_CHANGES = (
    "key STRING, position STRING, op STRING, cluster_time TIMESTAMP, collection_uuid STRING, document_size INT, envelope BINARY, "
    "_commit_version BIGINT"
)
_SHAPE = Shape("struct", fields={"v": Shape("int")})

Row = tuple[str | None, str, str, None, None, int | None, bytes, int]
Table = Callable[[str], SilverTable]


def change(key: str | None, position: str, op: str, value: int | None = None) -> Row:
    document = {"_id": key, "v": value}
    event = {"operationType": "update"} if value is None else {"operationType": "replace", "fullDocument": document}
    return (key, position, op, None, None, None if value is None else len(bson.encode(document)), bson.encode(event), 0)


OLD = (change("a", "1", "c", 1), change("b", "1", "c", 2), change("m", "1", "c", 3))


@pytest.fixture(autouse=True)
def _two_are_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.silver.halves.WORTH_TWO", 3)


@pytest.fixture
def made(tables: Tables) -> Table:
    """Makes a silver table of that name, with the rows of `OLD`."""

    def make(name: str) -> SilverTable:
        table = SilverTable(tables, TableName("silver", name))
        table.open(f"db.{name}", "test")
        table.change_schema(_SHAPE, [SchemaChange(("v",), "", "INT")])
        assert whole(table, OLD).inserted == 3
        return table

    return make


def frame(spark: SparkSession, changes: Sequence[Row]) -> DataFrame:
    return spark.createDataFrame(list(changes), _CHANGES)


def typed(state: DataFrame) -> DataFrame:
    return typed_rows(state, _SHAPE)


def whole(table: SilverTable, changes: Sequence[Row]) -> Merged:
    rows = frame(table.tables.spark, changes)
    return table.merge(typed(latest_per_key(rows)), keys=keys_of(rows), deletes="soft")


def by_halves(table: SilverTable, changes: Sequence[Row]) -> Merged | None:
    rows = frame(table.tables.spark, changes)
    halves = halves_of(rows, tables_at_once=1)
    assert halves
    return merge_by_halves(table, halves, latest_per_key(rows), typed, deletes="soft")


def content(table: SilverTable) -> DataFrame:
    return table.tables.read(table.name).withColumn("_rescued", F.col("_rescued").cast("string")).orderBy("_key")


def test_a_key_with_an_insert_is_on_one_side_whatever_came_of_it_and_all_others_on_the_other(spark: SparkSession) -> None:
    changes = [change("n", "2", "c", 1), change("n", "3", "u", 2), change("z", "3", "d"), change("z", "2", "c", 4)]
    changes += [change("m", "2", "u"), change("b", "2", "u", 5), change("b", "3", "d")]
    size = changes[0][5]
    assert size is not None
    assert halves_of(frame(spark, changes), tables_at_once=1) == [
        Half(True, Keys(bounds=("n", "z")), 2, 2 * size),
        Half(False, Keys(bounds=("b", "m")), 2, size),
    ]


@pytest.mark.parametrize("unsure", [change("q", "2", "r", 1), change(None, "2", "u", 1)])
def test_a_read_or_a_key_that_is_null_may_be_on_either_side(spark: SparkSession, unsure: Row) -> None:
    assert halves_of(frame(spark, [change("b", "2", "u", 1), unsure]), tables_at_once=1) == []


def test_few_keys_are_not_worth_two_commits(spark: SparkSession) -> None:
    both = [change("a", "2", "u", 1), change("n", "2", "c", 1)]
    assert halves_of(frame(spark, both), tables_at_once=1) == []
    assert len(halves_of(frame(spark, both[:1]), tables_at_once=1)) == 1
    assert len(halves_of(frame(spark, [*both, change("b", "2", "u", 1)]), tables_at_once=1)) == 2


def test_what_every_task_gets_is_bounded_for_all_tables_that_are_merged_at_once(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = frame(spark, [change("a", "2", "u", 1), change("b", "2", "u", 1), change("n", "2", "c", 1)])
    (inserted, known) = halves_of(changes, tables_at_once=1)
    monkeypatch.setattr("pipelines.silver.halves.BROADCAST_BYTES", 2 * known.document_bytes)
    assert halves_of(changes, tables_at_once=2) == [inserted, known]
    assert halves_of(changes, tables_at_once=3) == []
    only_inserted = frame(spark, [change("n", "2", "c", 1)])
    assert halves_of(only_inserted, tables_at_once=1_000_000) == [inserted], "it goes to no task as a whole"


# promise 2
def test_two_merges_make_the_same_table_as_one(made: Table) -> None:
    changes = [change("n", "2", "c", 10), change("n", "3", "u", 11), change("z", "2", "c", 12), change("z", "3", "d")]
    changes += [change("a", "2", "u", 13), change("b", "2", "d"), change("m", "2", "u")]
    once, twice = made("once"), made("twice")
    before = twice.tables.version(twice.name)
    assert by_halves(twice, changes) == whole(once, changes) == Merged(inserted=2, updated=3, deleted=0)
    assert twice.tables.version(twice.name) == before + 2
    assert_df_equality(content(once), content(twice))


# promise 2; scenario: C12
@pytest.mark.parametrize(
    "surprise",
    [
        pytest.param(
            [change("b", "2", "c", 20), change("y", "2", "c", 21)], id="an insert of what is there, as after a delete that was purged"
        ),
        pytest.param(
            [change("a", "2", "u", 22), change("b", "0", "u", 23), change("y", "2", "d")],
            id="a change of what is newer, and of what is not there",
        ),
    ],
)
def test_a_row_that_is_not_what_its_half_says_is_left_to_one_merge_of_all(made: Table, surprise: list[Row]) -> None:
    once, twice = made("once"), made("twice")
    assert by_halves(twice, surprise) is None
    whole(once, surprise)
    whole(twice, surprise)
    assert_df_equality(content(once), content(twice))
    assert by_halves(twice, surprise) is None, "the same batch again"
    assert_df_equality(content(once), content(twice))
