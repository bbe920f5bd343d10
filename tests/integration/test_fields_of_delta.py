"""Fields that have the names of columns which Delta and Spark use themselves when they change rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lakehouse import assert_columns_show_documents, assert_equal_to_source, land, pipeline, purge, silver, with_silver
from pymongo.database import Database
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from strandline.errors import ContractError
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.offsets.life_cycle import set_desired_state
from strandline.jobs.silver.rebuild import run_rebuild
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.delta_names import DELTA_NAMES
from strandline.model.shape import Compatibility
from strandline.model.table_schemas import BOOKKEEPING
from strandline.model.tables import TableName

Db = Database[dict[str, Any]]
NAMES = sorted(DELTA_NAMES)
MIXED_CASE = [name[:-3] + name[-3:].upper() for name in NAMES]
A, A_HISTORY = TableName("silver", "a"), TableName("silver", "a_history")


@pytest.mark.parametrize("kind", ["portable", pytest.param("native", marks=pytest.mark.long)])  # the default first
def test_a_field_with_a_name_of_deltas_own_is_rescued_and_stops_no_command(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path, kind: Compatibility
) -> None:
    """Also with deletion vectors, which a user switches on in a portable table."""
    ctx = pipeline(spark, mongo_uri, database.name, tmp_path, mode="change_streams")
    ctx = with_silver(ctx, history="scd2", compatibility=kind, engine="spark")
    fields = {name: number for number, name in enumerate([*NAMES, *MIXED_CASE])}
    aliases = {"s": {"_key": 1, "_position": 2}, "t": {"_key": "x"}}
    inner = dict.fromkeys(NAMES, 0)
    database.a.insert_many([{"_id": n, "inner": inner, **aliases, **fields} for n in range(5)])
    land(ctx)
    if kind == "portable":
        for table in (A, A_HISTORY):
            ctx.tables.set_properties(table, {"delta.enableDeletionVectors": "true"})
    database.a.update_many({"_id": {"$lt": 3}}, {"$inc": {NAMES[0]: 1, "inner.filepath": 1}})
    database.a.delete_one({"_id": 3})
    database.a.insert_one({"_id": 9, **fields})
    land(ctx)
    purge(ctx)
    database.a.update_many({}, {"$set": dict.fromkeys(MIXED_CASE, "again")})
    database.b.insert_one({"_id": 1})
    land(ctx)
    assert_equal_to_source(ctx, database, "a", "b")
    assert_columns_show_documents(ctx, A_HISTORY)
    rescued = silver(ctx, "a").where("_key = '0'").select(F.col("_rescued").cast("string")).first()
    assert rescued is not None
    assert set(json.loads(rescued[0])) == {*fields}
    assert silver(ctx, "a").select("inner.filepath", "inner._row_id_").where("filepath = 1").count() == 3

    database.a.drop()  # every row becomes a tombstone: an UPDATE
    land(with_silver(ctx, history="scd2", compatibility=kind, engine="spark", on_drop="soft_delete"))
    assert silver(ctx, "a").where("NOT _deleted").count() == 0


def test_a_table_with_a_column_of_deltas_name_is_refused_until_a_rebuild(
    spark: SparkSession, mongo_uri: str, database: Db, tmp_path: Path
) -> None:
    ctx = with_silver(pipeline(spark, mongo_uri, database.name, tmp_path), engine="spark")
    for collection in (database.a, database.b):
        collection.insert_one({"_id": 1})
    land(ctx)
    for collection in (database.a, database.b):
        collection.update_one({"_id": 1}, {"$set": {"_Row_Id_": 7}})
    run_capture(ctx, once=True)
    says = (
        r"silver\.{} has a column _Row_Id_: Delta's commands use that name themselves.* strandline rebuild silver\.{}"
    )
    with pytest.MonkeyPatch.context() as patched:  # as if the list lacked the name
        patched.setattr("strandline.model.shape._RESERVED", frozenset(BOOKKEEPING))
        with pytest.raises(ContractError, match=says.format("a", "a")):
            run_silver(ctx, collections=[f"{database.name}.a"])
    with pytest.raises(ContractError, match=says.format("a", "a")):
        run_silver(ctx)
    assert_equal_to_source(ctx, database, "b")
    set_desired_state(ctx, "stopped", by="ops", why="a rebuild")
    run_rebuild(ctx, "silver.a")
    run_silver(ctx)
    assert_equal_to_source(ctx, database, "a")
    assert "_row_id_" not in map(str.lower, silver(ctx, "a").columns)
