"""A small batch that this process merges: the same rows and the same change feed as Spark's MERGE."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import bson
import pyarrow as pa
import pytest
from bronze_changes import CHANGES_DDL
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from strandline.io.delta_log import mergeable_table
from strandline.io.delta_log.local_folder import LocalFolder
from strandline.io.delta_log.mergeable_table import MergeableTable
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.io.tables.spark_tables import Tables
from strandline.model.merge_rule import Merged
from strandline.model.shape import Shape
from strandline.model.tables import Lake, TableName
from strandline.silver import small_batch
from strandline.silver.batch_profile import profile_batch
from strandline.silver.decode.rows import typed_rows
from strandline.silver.fold.patches import CURRENT, fold_selected_keys
from strandline.silver.latest import latest_per_key, without_deleted_values
from strandline.silver.merge_rule import Deletes, merge_rule
from strandline.silver.schema.census import CensusTaker
from strandline.silver.schema.evolution import ColumnLimits, evolve
from strandline.silver.silver_table import SilverTable
from strandline.silver.small_batch import state_of, typed
from strandline.silver.small_fold import folded_keys, folded_state

_VALUES = (
    *(1, 2**40, 1.5, "text", "long " * 20, None, True, bson.Int64(7), bson.ObjectId("0" * 24)),
    *(bson.Decimal128("1.25"), bson.datetime.datetime(2026, 11, 26, 1, 2, 3, 4000), b"bytes", bson.Regex("a")),
    *({"a": 1, "b": [{"c": 1}, {"c": 2}]}, {"a": None}, [], [1, 2], {}),
)
_FIELDS = ("n", "t", "at", "d", "nested", "list", "mixed")
_ARROW = {
    **dict.fromkeys(("key", "position", "op", "collection_uuid", "inexact"), pa.string()),
    "cluster_time": pa.timestamp("us", tz="UTC"),
    "document_size": pa.int32(),
    "envelope": pa.binary(),
    "_commit_version": pa.int64(),
}
_NAMES = tuple(part.split()[0] for part in CHANGES_DDL.split(", "))
_TABLE = TableName("silver", "t")
_BATCHES = 6


def _document(chance: random.Random, key: str) -> dict[str, Any]:
    typical = {"n": 1, "t": "text", "at": bson.datetime.datetime(2026, 1, 1), "d": bson.Decimal128("2.5")}
    nested = {"nested": {"a": 1, "b": [{"c": chance.randint(0, 9)}]}, "list": [1, 2], "mixed": chance.choice(_VALUES)}
    document = {"_id": key, **typical, **nested}
    for name in chance.sample(_FIELDS, chance.randint(0, 3)):
        document[name] = chance.choice(_VALUES)
    return document


def _event(chance: random.Random, document: dict[str, Any] | None) -> dict[str, Any]:
    if document is not None or chance.random() < 0.2:  # without both, as an oversize event
        return {"fullDocument": document}
    updated = {"n": chance.randint(0, 9), "nested.a": chance.randint(0, 9)}
    return {"updateDescription": {"updatedFields": updated, "removedFields": ["t"], "truncatedArrays": []}}


def _change(chance: random.Random, keys: int, version: int) -> tuple[Any, ...]:
    key, op = f"k{chance.randint(0, keys):05}", chance.choice("ccuuudr")
    step = chance.randint(0, 200)
    position = f"{step:08x}:{'~' if op == 'r' else '82'}"
    document = None if op == "d" or (op in "cu" and chance.random() < 0.3) else _document(chance, key)
    envelope = bson.encode(document or {}) if op == "r" else bson.encode(_event(chance, document))
    at = bson.datetime.datetime.fromtimestamp(step, bson.datetime.timezone.utc)
    size = None if document is None else len(bson.encode(document))
    # what a position holds never differs: a change that was captured twice is the same change
    uuid = ("a" * 32, "b" * 32, None)[step % 3] if keys < 50 else "a" * 32
    inexact = "lookup" if op == "u" and step % 2 and document else None
    return key, position, op, at, uuid, size, envelope, version, inexact


def _batches(seed: int, keys: int, count: int) -> Iterator[list[tuple[Any, ...]]]:
    chance, seen = random.Random(seed), {}
    for version in range(count):
        rows = [_change(chance, keys, version) for _ in range(chance.randint(1, 60))]
        # one change for each key and position
        yield [(*seen.setdefault(row[:2], row)[:7], version, seen[row[:2]][8]) for row in rows]


def _arrow(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table({name: pa.array(list(one), _ARROW[name]) for name, one in zip(_NAMES, columns, strict=True)})


def _plain(rows: Sequence[Any]) -> list[Any]:
    return [tuple(bytes(value) if isinstance(value, bytearray) else value for value in row) for row in rows]


# promise 2
@pytest.mark.parametrize("deletes", ["soft", "hard"])
def test_the_state_of_each_key_is_the_one_that_spark_finds(spark: SparkSession, deletes: Deletes) -> None:
    rows = [row for batch in _batches(3, 40, 20) for row in batch]
    state = latest_per_key(spark.createDataFrame(rows, CHANGES_DDL)).drop("inserted")
    expected = (without_deleted_values(state) if deletes == "hard" else state).orderBy("_key")
    here = state_of(_arrow(rows)).sort_by("_key")
    here = small_batch.without_deleted_values(here) if deletes == "hard" else here
    assert here.schema.names == expected.columns
    assert spark.createDataFrame(here, expected.schema).collect() == expected.collect()
    assert len(rows) > 2 * here.num_rows > 0


class _Twins:
    """Two equal silver tables. Spark merges into one, and this process into the other one."""

    def __init__(self, spark: SparkSession, root: Path, shape: Shape, deletes: Deletes) -> None:
        self.spark, self.root, self.shape, self.deletes = spark, root, shape, deletes
        self.spark_table, self.here = (
            SilverTable(Tables(spark, Lake(root=str(root / name))), _TABLE) for name in ("spark", "here")
        )
        for table in (self.spark_table, self.here):
            table.open("db.t", "test")
            _, changes = evolve(Shape("struct"), _census([]), ColumnLimits(compatibility="portable"))
            assert changes == []
            evolved, changes = evolve(Shape("struct"), _census(_ALL), ColumnLimits(compatibility="portable"))
            table.change_schema(evolved, changes, before=Shape("struct"))
        self.shape = evolved

    @property
    def folder(self) -> LocalFolder:
        return LocalFolder(Path(self.here.tables.lake.path(_TABLE)))

    def opened(self) -> MergeableTable:
        opened = MergeableTable.open(self.folder, "_key")
        assert opened is not None
        return opened

    def merge(self, rows: list[tuple[Any, ...]]) -> tuple[Any, Any]:
        frame = self.spark.createDataFrame(rows, CHANGES_DDL)
        profile, is_hard = profile_batch(frame, max_depth=8), self.deletes == "hard"
        stored = self.spark_table.tables.read(_TABLE)
        folding = profile.keys_to_fold(stored)
        state = latest_per_key(frame) if folding is None else fold_selected_keys(frame, stored, folding)[0]
        state = without_deleted_values(state) if is_hard else state
        typed_by_spark = typed_rows(state, self.shape, "portable")
        by_spark = self.spark_table.merge(typed_by_spark, keys=profile.keys, deletes=self.deletes)
        return by_spark, self.merge_here(_arrow(rows))

    def merge_here(self, changes: pa.Table, opened: MergeableTable | None = None) -> Merged | None:
        opened = opened or self.opened()
        current = opened.rows_with(changes["key"], CURRENT)
        folded = folded_keys(changes, current)
        state = folded_state(changes, state_of(changes), current, folded, ())
        is_hard = self.deletes == "hard"
        new = typed(small_batch.without_deleted_values(state) if is_hard else state, self.shape)
        columns = sorted({*new.schema.names, "_pending"})
        rule = merge_rule(columns, deletes=self.deletes, watermark="")
        files = [file for file, _ in opened.find_keys(changes["key"])]
        merged = opened.merge(opened.conformed(new, columns), rule, files)
        opened.tidy()
        return merged

    def rows(self) -> tuple[list[Any], list[Any]]:
        both = (table.tables.read(_TABLE).orderBy("_key").collect() for table in (self.spark_table, self.here))
        one, other = (_plain(rows) for rows in both)
        return one, other

    def feed(self, table: SilverTable, first: int) -> DataFrame:
        path = table.tables.lake.path(_TABLE)
        reader = self.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", first)
        return reader.load(path).drop("_commit_version", "_commit_timestamp")


_ALL = [row for batch in _batches(11, 40, _BATCHES) for row in batch]


def _census(rows: Sequence[tuple[Any, ...]]) -> Any:
    documents = [
        row[6] if row[2] == "r" else bson.encode(bson.decode(row[6])["fullDocument"]) for row in rows if row[5]
    ]
    return CensusTaker(8).count(documents)


# promise 2, 3
@pytest.mark.parametrize("deletes", ["soft", pytest.param("hard", marks=pytest.mark.long)])  # the default first
def test_rows_counts_and_change_feed_are_those_of_sparks_merge(
    spark: SparkSession, tmp_path: Path, deletes: Deletes
) -> None:
    twins = _Twins(spark, tmp_path, Shape("struct"), deletes)
    for number, batch in enumerate(_batches(11, 40, _BATCHES)):
        versions = [table.tables.version(_TABLE) for table in (twins.spark_table, twins.here)]
        by_spark, here = twins.merge(batch)
        assert here == by_spark, f"batch {number}"
        one, other = twins.rows()
        assert other == one, f"batch {number}"
        feeds = (
            twins.feed(table, version + 1).collect() if by_spark.rows else []
            for table, version in zip((twins.spark_table, twins.here), versions, strict=True)
        )
        by_spark_feed, own_feed = (sorted(map(repr, _plain(feed))) for feed in feeds)
        assert own_feed == by_spark_feed, f"batch {number}"
    assert twins.here.tables.version(_TABLE) > _BATCHES
    assert twins.here.tables.read(_TABLE).where("_pending IS NOT NULL").count() > 0
    assert twins.here.tables.read(_TABLE).where("_inexact_because IS NULL AND n IS NOT NULL").count() > 0
    assert DeltaTable(str(twins.folder.path)).to_pyarrow_table().num_rows == len(other)


def test_many_small_files_become_one_and_their_rows_stay_out_of_the_feed(spark: SparkSession, tmp_path: Path) -> None:
    twins = _Twins(spark, tmp_path, Shape("struct"), "soft")
    for number in range(40):
        document = {"_id": f"k{number:05}", "n": 1}
        position = f"{number:08x}:82"
        raw = bson.encode({"fullDocument": document})
        row = (document["_id"], position, "c", None, "a" * 32, len(bson.encode(document)), raw, number, None)
        twins.merge_here(_arrow([row]))
    assert len(twins.opened().files) < 32
    assert (twins.folder.path / "_delta_log" / "_last_checkpoint").exists()
    assert twins.here.tables.read(_TABLE).count() == 40
    inserted = twins.feed(twins.here, 1)
    assert inserted.count() == inserted.where("_change_type = 'insert'").count() == 40


_CHANGES = {
    "": True,
    "ADD CONSTRAINT positive CHECK (_key <> '')": False,
    "SET TBLPROPERTIES ('delta.appendOnly' = 'true')": False,
    "SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')": False,
    "SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')": False,
    "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')": False,
    "SET TBLPROPERTIES ('delta.dataSkippingStatsColumns' = 'price')": True,
    "SET TBLPROPERTIES ('delta.dataSkippingStatsColumns' = '_key,at')": True,
}


@pytest.mark.parametrize(("change", "is_changeable"), _CHANGES.items())
def test_a_table_with_other_features_is_left_to_spark(
    spark: SparkSession, tmp_path: Path, change: str, is_changeable: bool
) -> None:
    spark.sql(f"CREATE TABLE delta.`{tmp_path}` (_key STRING, at TIMESTAMP, price DOUBLE) USING delta")
    if change:
        spark.sql(f"ALTER TABLE delta.`{tmp_path}` {change}")
    assert (MergeableTable.open(LocalFolder(tmp_path), "_key") is not None) == is_changeable


def test_a_table_with_structs_is_left_to_spark_where_pyarrow_takes_their_fields_by_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, kind in (("flat", "price BIGINT"), ("nested", "price STRUCT<net: BIGINT>")):
        DeltaRsTables(Lake(str(tmp_path))).create_table(TableName("silver", name), f"_key STRING, {kind}")
    flat, nested = (LocalFolder(tmp_path / "silver" / name) for name in ("flat", "nested"))
    assert MergeableTable.open(nested, "_key") is not None
    monkeypatch.setattr(mergeable_table, "_FINDS_FIELDS_BY_NAME", False)  # as before pyarrow 21
    assert MergeableTable.open(nested, "_key") is None
    assert MergeableTable.open(flat, "_key") is not None
