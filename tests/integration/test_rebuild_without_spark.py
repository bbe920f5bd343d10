"""Rebuilds that need no Spark: crashes, other writers, and a table that goes on afterwards."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import bson
import pytest
from lakehouse import settings_for
from pymongo.database import Database
from spark_refused import WITHOUT_SPARK, SparkIsNeeded, capture_without_spark, lake_without_spark

from strandline.errors import ConfigurationError
from strandline.io.delta_log import replacement
from strandline.io.spark.races import OvertakenError
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.io.tables.table_store import CHANGE_FEED
from strandline.jobs.lake_context import LazyContext
from strandline.jobs.offsets.life_cycle import set_desired_state
from strandline.jobs.silver import rebuild
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.tables import TableName

Db = Database[dict[str, Any]]
pytestmark = WITHOUT_SPARK
_A = TableName("silver", "a")


def documents(ctx: LazyContext) -> set[bytes]:
    rows = ctx.tables.folder(_A).table().to_pyarrow_table(columns=["_deleted", "_document"]).to_pylist()
    return {row["_document"] for row in rows if not row["_deleted"]}


def in_source(database: Db) -> set[bytes]:
    return {bson.encode(document) for document in database.a.find()}


@pytest.fixture
def ctx(mongo_uri: str, database: Db, tmp_path: Path) -> LazyContext:
    """A table with a price in _rescued, a patch, a tombstone and a later column. Its source is stopped."""
    settings = settings_for(mongo_uri, database.name, tmp_path / "lake", mode="change_streams")
    ctx = lake_without_spark(settings)
    database.a.insert_many([{"_id": number, "price": number} for number in range(20)])
    capture_without_spark(ctx)
    run_silver(ctx)
    database.a.update_one({"_id": 1}, {"$set": {"price": bson.Decimal128("1.10"), "note": "gift"}})
    database.a.delete_one({"_id": 3})
    capture_without_spark(ctx)
    run_silver(ctx)
    set_desired_state(ctx, "stopped", by="ops", why="a rebuild")
    return ctx


# promise 2; scenario: S02
def test_a_rebuilt_table_has_new_types_and_silver_goes_on(ctx: LazyContext, database: Db) -> None:
    assert ctx.tables.column_types(_A)["price"] == "bigint"
    before = ctx.tables.version(_A)
    dry = rebuild.run_rebuild(ctx, "a", dry_run=True)
    assert (dry.swapped, ctx.tables.version(_A)) == (False, before)
    result = rebuild.run_rebuild(ctx, "silver.a")
    assert (result.rows, result.missing, result.extra, result.different) == (20, 0, 0, 0)
    assert (result.engine, result.retyped) == ("delta-rs", (("price", "bigint", "decimal(38,2)"),))
    assert ctx.tables.column_types(_A)["price"] == "decimal(38,2)"
    assert documents(ctx) == in_source(database)
    assert not [name for name in ctx.tables.names("control") if name.name.startswith("rebuild")]
    set_desired_state(ctx, "running", by="ops", why=None)
    assert run_silver(ctx) == []
    database.a.update_one({"_id": 2}, {"$set": {"other": True}})
    capture_without_spark(ctx)
    run_silver(ctx)
    assert documents(ctx) == in_source(database)


def _silver(ctx: LazyContext) -> None:
    ctx.tables.set_properties(_A, {"somebody.else": "1"})


# promise 2
@pytest.mark.parametrize("step", [(replacement, "put_commit"), (DeltaRsTables, "set_properties")])
@pytest.mark.parametrize("end", ["killed", "overtaken"])
def test_a_rebuild_that_ends_between_its_commits_leaves_a_whole_table(
    ctx: LazyContext, database: Db, step: tuple[Any, str], end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, rivals = getattr(*step), [_silver]

    def interrupted(*args: Any, **others: Any) -> Any:
        is_swap = step[1] == "put_commit" or (args[1] == _A and CHANGE_FEED in args[2])
        if is_swap and rivals:
            rival = rivals.pop()
            if end == "killed":
                raise KeyboardInterrupt
            rival(ctx)
        return work(*args, **others)

    is_refused = end == "overtaken" and step[1] == "put_commit"
    with monkeypatch.context() as patched:
        patched.setattr(*step, interrupted)
        refused = pytest.raises(OvertakenError, match="nothing was replaced") if is_refused else nullcontext()
        with pytest.raises(KeyboardInterrupt) if end == "killed" else refused:
            rebuild.run_rebuild(ctx, "a")
    assert documents(ctx) == in_source(database)
    again = rebuild.run_rebuild(ctx, "a")
    assert (again.engine, again.missing, again.extra, again.different) == ("delta-rs", 0, 0, 0)
    assert ctx.tables.properties(_A)[CHANGE_FEED] == "true"
    assert documents(ctx) == in_source(database)


def test_a_running_source_is_refused_without_spark(ctx: LazyContext) -> None:
    set_desired_state(ctx, "running", by="ops", why=None)
    with pytest.raises(ConfigurationError, match=r"rebuilt only while it is stopped.*strandline stop"):
        rebuild.run_rebuild(ctx, "silver.a")
    with pytest.raises(ConfigurationError, match="no silver table"):
        rebuild.run_rebuild(ctx, "silver.order", dry_run=True)


@pytest.mark.parametrize("arguments", [{"keys": ["1"]}, {"since": "2020-01-01T00:00:00Z"}])
def test_a_part_is_rebuilt_by_spark(ctx: LazyContext, arguments: dict[str, Any]) -> None:
    with pytest.raises(SparkIsNeeded):
        rebuild.run_rebuild(ctx, "silver.a", **arguments)
