"""Portable and native silver tables: features, types, and the change from one to the other."""

from __future__ import annotations

import datetime as dt
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import bson
import pytest
from deltalake import DeltaTable
from lakehouse import assert_equal_to_source, land, pipeline, silver, with_silver
from pymongo.database import Database
from pyspark.sql import SparkSession

from strandline import read
from strandline.errors import ContractError
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.gold.run_gold import run_gold
from strandline.jobs.maintenance.run_maintain import run_maintain
from strandline.jobs.offsets.life_cycle import set_desired_state as set_state
from strandline.jobs.silver.rebuild import run_rebuild
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.shape import Compatibility
from strandline.model.tables import TableName
from strandline.silver.configured_properties import CONFIGURED

Db = Database[dict[str, Any]]
DOCUMENTS: list[dict[str, Any]] = [
    {"_id": 1, "n": 1, "mixed": 1, "amount": 1, "at": {"x": 1}, "l": [1, 2]},
    {"_id": 2, "n": 2**40, "mixed": "text", "amount": 1.5, "at": {"x": 2, "y": [{"z": "q"}]}, "l": []},
    {"_id": 3, "n": 3, "mixed": {"a": bson.ObjectId("0" * 24)}, "amount": bson.Int64(2**53 + 1), "at": {}},
]


def protocol(ctx: JobContext, table: str) -> tuple[int, set[str]]:
    opened = DeltaTable(str(Path(ctx.settings.lake.root or "") / "silver" / table)).protocol()
    return opened.min_reader_version, set(opened.reader_features or ())


def turned(ctx: JobContext, compatibility: Compatibility) -> JobContext:
    """Rebuild table *a* with another compatibility, and return the context with it."""
    settings = ctx.settings.model_copy(
        update={"silver": ctx.settings.silver.model_copy(update={"compatibility": compatibility})}
    )
    changed = replace(ctx, settings=settings)
    set_state(ctx, "stopped", by="ops", why="a rebuild")
    run_rebuild(changed, "silver.a")
    set_state(ctx, "running", by="ops", why=None)
    return changed


# scenario: S01, S02, S07
def test_a_new_table_is_portable_by_default_and_a_rebuild_makes_it_native(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = with_silver(pipeline(spark, mongo_uri, database.name, tmp_path), compatibility="portable")
    database.a.insert_many(DOCUMENTS)
    land(ctx)
    assert_equal_to_source(ctx, database, "a")
    portable = {
        "_id": "bigint",
        "n": "bigint",
        "mixed": "string",
        "amount": "double",
        "at": "struct<x:bigint,y:array<struct<z:string>>>",
        "l": "array<bigint>",
        "_rescued": "string",
    }
    assert {name: dict(silver(ctx, "a").dtypes)[name] for name in portable} == portable
    rows = {row["_key"]: row for row in silver(ctx, "a").collect()}
    assert [json.loads(rows[key]["mixed"]) for key in "123"] == [
        {"$numberInt": "1"},
        "text",
        {"a": {"$oid": "0" * 24}},
    ]
    assert [rows[key]["amount"] for key in "123"] == [1.0, 1.5, None], "a long that is no exact double is rescued"
    assert json.loads(rows["3"]["_rescued"]) == {"amount": {"type": "long", "value": {"$numberLong": str(2**53 + 1)}}}
    assert protocol(ctx, "a") == (1, set())

    native = turned(ctx, "native")
    types = dict(silver(native, "a").dtypes)
    assert [types[name] for name in ("_id", "mixed", "amount", "_rescued")] == ["int", "variant", "variant", "variant"]
    assert protocol(native, "a")[0] == 3
    database.a.delete_one({"_id": 1})  # a deletion vector
    database.a.update_one({"_id": 2}, {"$set": {"l": [3]}})
    land(ctx)
    assert_equal_to_source(ctx, database, "a")
    assert dict(silver(ctx, "a").dtypes) == types, "the table keeps its features until a rebuild"

    back = turned(native, "portable")
    assert protocol(back, "a") == (1, set())
    assert {name: dict(silver(back, "a").dtypes)[name] for name in portable} == portable
    database.a.insert_one({"_id": 4, "mixed": [1], "new": 1})
    database.a.delete_one({"_id": 2})
    land(back)
    assert_equal_to_source(back, database, "a")
    live = DeltaTable(str(tmp_path / "silver" / "a")).to_pyarrow_table()
    assert sorted(
        key for key, gone in zip(live["_key"].to_pylist(), live["_deleted"].to_pylist(), strict=True) if not gone
    ) == [
        "3",
        "4",
    ]


# scenario: S07
@pytest.mark.long
def test_gold_with_the_documented_sql_is_the_same_on_both_kinds(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "columns.md").read_text("utf-8")
    (query,) = [sql for sql in re.findall(r"```sql\n(.*?)```", page, re.DOTALL) if "typeof" in sql]
    for kind in ("portable", "native"):
        sql = query.replace("silver.orders", f"silver.{kind}")
        (tmp_path / "sql").mkdir(exist_ok=True)
        (tmp_path / "sql" / f"{kind}.sql").write_text(f"-- materialized: table\n{sql}", encoding="utf-8")
    by_collection: dict[str, Compatibility] = {f"{database.name}.native": "native"}
    ctx = with_silver(
        pipeline(spark, mongo_uri, database.name, tmp_path),
        compatibility="portable",
        compatibility_by_collection=by_collection,
    )
    gold = ctx.settings.gold.model_copy(update={"sql_dir": tmp_path / "sql"})
    ctx = replace(ctx, settings=ctx.settings.model_copy(update={"gold": gold}))
    sizes = ["XL", "1", 'a "b"', 1, True, [1], {"a": "b"}]
    for kind in ("portable", "native"):
        database[kind].insert_many(
            [{"_id": number, "total": number, "size": size} for number, size in enumerate(sizes)]
        )
    land(ctx)
    for kind in ("portable", "native"):
        database[kind].insert_one({"_id": 9, "total": "free"})  # later, so it does not fit the column
    land(ctx)
    run_gold(ctx)
    expected = {str(number): (None, size) for number, size in enumerate(["XL", "1", 'a "b"'])} | {
        "3": (None, '{"$numberInt":"1"}'),
        "4": (None, "true"),
        "5": (None, '[{"$numberInt":"1"}]'),
        "6": (None, '{"a":"b"}'),
        "9": ("free", None),
    }
    for kind in ("portable", "native"):
        rows = spark.read.format("delta").load(str(tmp_path / "gold" / kind)).collect()
        assert {row["_key"]: (row["rescued_total"], row["size"]) for row in rows} == expected, kind


# scenario: S07
@pytest.mark.parametrize("kind", ["portable", pytest.param("native", marks=pytest.mark.long)])
def test_history_has_the_features_of_its_table(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, kind: Compatibility
) -> None:
    by_collection = {f"{database.name}.a": kind}
    ctx = with_silver(
        pipeline(spark, mongo_uri, database.name, tmp_path), history="scd2", compatibility_by_collection=by_collection
    )
    database.a.insert_many(DOCUMENTS)
    land(ctx)
    assert protocol(ctx, "a_history")[0] == (1 if kind == "portable" else 3)
    assert silver(ctx, "a_history").where("mixed IS NOT NULL").count() == 3


@pytest.mark.long
def test_a_layout_waits_for_its_columns_and_leaves_out_structs(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    laid_out = {f"{database.name}.a": {"cluster_by": "placed, at.x", "statistics": ["n"]}}
    ctx = with_silver(pipeline(spark, mongo_uri, database.name, tmp_path), layout=laid_out)
    database.a.insert_one({"_id": 1, "n": 1, "at": {"x": 1}})
    land(ctx)
    assert "silver.layout names placed, and silver.a has no such column yet" in caplog.text
    assert clustering(ctx) == [["at", "x"], ["_key"]]
    database.a.insert_one({"_id": 2, "n": 2, "at": {"x": 2}, "placed": dt.datetime(2026, 11, 25)})
    land(ctx)
    assert clustering(ctx) == [["placed"], ["at", "x"], ["_key"]]
    database.a.insert_one({"_id": 3, "n": 3, "at": {"x": 3}, "placed": dt.datetime(2026, 11, 26)})
    land(ctx)
    assert run_silver(ctx) == []
    newest = max((tmp_path / "silver" / "a" / "_delta_log").glob("*[0-9].json"), key=statistics_in)
    smallest = statistics_in(newest)[1]["minValues"]
    assert (smallest["n"], smallest["at"], smallest["placed"]) == (3, {"x": 3}, "2026-11-26T00:00:00.000Z")

    set_state(ctx, "stopped", by="ops", why="a rebuild")
    run_rebuild(ctx, "silver.a")
    assert clustering(ctx) == [["placed"], ["at", "x"], ["_key"]]
    set_state(ctx, "running", by="ops", why=None)
    wrong = with_silver(ctx, layout={f"{database.name}.a": {"cluster_by": "at"}})
    database.a.insert_one({"_id": 4, "order date": 1})
    run_capture(ctx, once=True)
    with pytest.raises(ContractError, match=r"silver\.layout names at, and in silver\.a it is struct.*schema show"):
        run_silver(wrong)
    assert_equal_to_source(ctx, database, "a")  # the data is there in spite of it
    quoted = with_silver(ctx, layout={f"{database.name}.a": {"cluster_by": "order date"}})
    database.a.insert_one({"_id": 5})
    land(quoted)
    assert clustering(ctx) == [["order date"], ["_key"]]
    assert_equal_to_source(ctx, database, "a")


# why long: two silver runs with a history, and two rebuilds
@pytest.mark.long
def test_table_properties_come_with_a_run_and_follow_the_setting_in_a_rebuild(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    width, by_hand = "delta.dataSkippingStringPrefixLength", "delta.randomPrefixLength"
    plain = with_silver(pipeline(spark, mongo_uri, database.name, tmp_path), history="scd2")
    wide = with_silver(plain, history="scd2", table_properties={width: "40"})

    def stored(table: str = "a") -> dict[str, str]:
        found = plain.tables.properties(TableName("silver", table))
        return {name: value for name, value in found.items() if name in (width, by_hand, CONFIGURED)}

    database.a.insert_one({"_id": 1})
    land(wide)
    configured = {width: "40", CONFIGURED: f'["{width}"]'}
    assert stored() == stored("a_history") == configured
    plain.tables.set_properties(TableName("silver", "a"), {by_hand: "4"})
    set_state(plain, "stopped", by="ops", why="a rebuild")
    run_rebuild(wide, "silver.a")
    assert stored() == {**configured, by_hand: "4"}
    run_rebuild(plain, "silver.a")
    assert stored() == {by_hand: "4"}
    described = spark.sql(f"DESCRIBE {plain.tables.lake.sql(TableName('silver', 'a'))}").collect()
    comments = {row["col_name"]: row["comment"] for row in described}
    assert comments["_position"] == "position of the newest change", "a rebuild keeps comments"
    set_state(plain, "running", by="ops", why=None)
    database.a.insert_one({"_id": 2})
    land(plain)
    assert (stored(), stored("a_history")) == ({by_hand: "4"}, {})
    assert_equal_to_source(plain, database, "a")


def clustering(ctx: JobContext) -> list[list[str]]:
    found = ctx.tables.detail(TableName("silver", "a"))["clusteringColumns"]
    return [name.replace("`", "").split(".") for name in found]


def statistics_in(commit: Path) -> tuple[str, dict[str, Any]]:
    """Return the name of a commit with an added file, and the statistics of that file."""
    for line in commit.read_text("utf-8").splitlines():
        if "add" in (action := json.loads(line)):
            return commit.name, json.loads(action["add"]["stats"])
    return "", {}


# scenario: S01
@pytest.mark.parametrize("mode", ["declared", "variant"])
def test_declared_columns_stay_from_run_to_run(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, mode: str
) -> None:
    columns = {f"{database.name}.a": {"n": "int", "more": "variant", "inner": {"b": "int"}}}
    ctx = with_silver(pipeline(spark, mongo_uri, database.name, tmp_path), schema_mode=mode, columns=columns)
    for number in range(3):
        database.a.insert_one({"_id": number, "n": number, "more": {"x": number}, "inner": {"b": number}})
        land(ctx)
    types = dict(silver(ctx, "a").dtypes)
    assert (types["n"], types["more"], types["inner"]) == ("bigint", "string", "struct<b:bigint>")
    assert types.get("document") == ("string" if mode == "variant" else None)
    assert silver(ctx, "a").where("n = inner.b AND _rescued IS NULL").count() == 3


@pytest.mark.long
def test_names_that_need_mapping_and_a_field_called_variant_survive_every_change(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = with_silver(pipeline(spark, mongo_uri, database.name, tmp_path), field_name_adjustment_mode="avro")
    database.a.insert_one({"_id": 1, "variant": "v", "unit price": 1})
    land(ctx)
    assert protocol(ctx, "a") == (1, set())
    mapped = with_silver(ctx, field_name_adjustment_mode="none")
    for compatibility in ("portable", "native", "portable"):
        mapped = turned(mapped, compatibility)
        needs = {"columnMapping", "timestampNtz"}
        version, features = protocol(mapped, "a")
        assert version == 3
        if compatibility == "portable":
            assert features == needs
            with pytest.raises(Exception, match="columnMapping"):  # refused, and not read as NULL
                DeltaTable(str(tmp_path / "silver" / "a")).to_pyarrow_table()
    assert read("a", root=tmp_path).select(["variant", "unit price"]).to_pylist() == [{"variant": "v", "unit price": 1}]
    database.a.insert_one({"_id": 2, "unit price": 2})
    land(mapped)
    assert_equal_to_source(mapped, database, "a")


@pytest.mark.long
def test_a_rebuild_that_was_killed_before_its_last_commit_is_completed_by_maintain(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = with_silver(pipeline(spark, mongo_uri, database.name, tmp_path), compatibility="native")
    database.a.insert_one({"_id": 1, "v": 1})
    land(ctx)
    with monkeypatch.context() as killed:
        killed.setattr("strandline.jobs.silver.spark_shadow.lower_protocol", lambda *_: None)
        portable = turned(ctx, "portable")
    assert protocol(portable, "a")[0] == 3
    run_maintain(portable)
    assert protocol(portable, "a") == (1, set())
    assert read("a", root=tmp_path)["v"].to_pylist() == [1]


def by_sql(ctx: JobContext, table: str, *statements: str) -> None:
    for statement in statements:
        ctx.spark.sql(statement.format(ctx.tables.lake.sql(TableName("silver", table))))


# scenario: S07
@pytest.mark.long
def test_features_that_a_user_brought_into_a_portable_table_stay_through_maintain(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    """Deletion vectors that are disabled again or left enabled, a column without a time zone, a widened column."""
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path)
    names = ("disabled", "enabled", "zoneless", "widened")
    for name in names:
        database[name].insert_many([{"_id": number, "n": number} for number in range(20)])
    land(ctx)
    vectors = "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableDeletionVectors' = '%s')"
    by_sql(ctx, "disabled", vectors % "true", "DELETE FROM {} WHERE n < 5", vectors % "FALSE")
    by_sql(ctx, "enabled", vectors % "true", "DELETE FROM {} WHERE n < 5")
    ntz = "ALTER TABLE {} SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported')"
    by_sql(ctx, "zoneless", ntz, "ALTER TABLE {} ADD COLUMN own STRUCT<at: TIMESTAMP_NTZ>")
    widening = "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableTypeWidening' = '%s')"
    narrow = (
        "ALTER TABLE {} ADD COLUMN own SMALLINT",
        "UPDATE {} SET own = n",
        "ALTER TABLE {} ALTER COLUMN own TYPE INT",
    )
    by_sql(ctx, "widened", widening % "true", *narrow, widening % "false")
    before = {name: (protocol(ctx, name), silver(ctx, name).count()) for name in names}
    assert [rows for _, rows in before.values()] == [15, 15, 20, 20]

    for _ in range(2):
        run_maintain(ctx)
        assert {name: (protocol(ctx, name), silver(ctx, name).count()) for name in names} == before
    for name in names:
        database[name].insert_one({"_id": 100, "n": 100})
    land(ctx)
    assert [silver(ctx, name).count() for name in names] == [16, 16, 21, 21]
    assert silver(ctx, "widened").where("own = n").count() == 20
