"""Gold, snapshots, restore, compaction, erase and dead letters of one tenant of a table of many databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bson
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from lakehouse import compact, without_utf8
from pyspark.sql import SparkSession
from spark_refused import WITHOUT_SPARK
from tenants import ORDERS, Client, Tenants, assert_equal, by_both, land, rows

from strandline.jobs.erase.run_erase import run_erase
from strandline.jobs.gold.run_gold import run_gold
from strandline.jobs.lake_context import LazyContext
from strandline.jobs.offsets.life_cycle import set_desired_state
from strandline.jobs.operations.dead_letter_replay import replay
from strandline.jobs.operations.dead_letters import list_dead_letters
from strandline.jobs.restore.run_restore import run_restore
from strandline.jobs.silver.rebuild import run_rebuild
from strandline.jobs.snapshot.send_signal import send_signal
from strandline.model.table_schemas import bronze_table
from strandline.model.tables import TableName
from strandline.settings.output import GoldSettings

pytestmark = WITHOUT_SPARK
_BY_TENANT = """-- materialized: incremental
-- keys: tenant
SELECT tenant, count(*) AS orders, sum(n) AS total FROM silver.orders WHERE NOT _deleted GROUP BY tenant
"""
_WHOLE = """-- materialized: table
SELECT count(DISTINCT tenant) AS tenants, sum(n) AS total FROM silver.orders WHERE NOT _deleted
"""


@pytest.fixture
def tenants(mongo: Client, database: Any) -> Iterator[Tenants]:
    own = Tenants(mongo, database.name)
    yield own
    own.drop()


def assert_gold_shows(ctx: LazyContext, by_tenant: dict[str, tuple[int, int]]) -> None:
    run_gold(ctx.with_spark())
    own, whole = (rows(ctx, TableName("gold", name)) for name in ("by_tenant", "whole"))
    assert {row["tenant"]: (row["orders"], row["total"]) for row in own} == by_tenant
    assert whole == [{"tenants": len(by_tenant), "total": sum(total for _, total in by_tenant.values())}]


# promise 2
def test_gold_follows_the_tenants_that_change_leave_and_come(
    spark: SparkSession, mongo_uri: str, tenants: Tenants, tmp_path: Path
) -> None:
    for name, text in (("by_tenant", _BY_TENANT), ("whole", _WHOLE)):
        (tmp_path / f"{name}.sql").write_text(text)
    settings = tenants.settings(mongo_uri, tmp_path / "lake")
    ctx = by_both(spark, settings.model_copy(update={"gold": GoldSettings(sql_dir=str(tmp_path))}))
    for number, name in enumerate("abc"):
        tenants[name].insert_many([{"_id": n, "n": number} for n in range(3)])
    land(ctx)
    assert_gold_shows(ctx, {"a": (3, 0), "b": (3, 3), "c": (3, 6)})
    tenants["b"].insert_one({"_id": 9, "n": 10})
    tenants["d"].insert_one({"_id": 0, "n": 1})
    tenants.client.drop_database(tenants.prefix + "c")
    land(ctx)
    assert_gold_shows(ctx, {"a": (3, 0), "b": (4, 13), "d": (1, 1)})


# promises 2 and 3
# why long: a sweep and a restore by Spark
@pytest.mark.long
def test_a_snapshot_and_a_restore_of_one_tenant_leave_the_others(
    spark: SparkSession, mongo_uri: str, tenants: Tenants, tmp_path: Path
) -> None:
    ctx = by_both(spark, tenants.settings(mongo_uri, tmp_path / "lake"))
    for name in "ab":
        tenants[name].insert_many([{"_id": n, "n": 1} for n in range(3)])
    land(ctx)
    lose_row_and_keep_another(ctx)
    send_signal(ctx, "execute-snapshot", {"data-collections": [rf"{tenants.prefix}a\.orders"]}, by="ops")
    land(ctx)
    present = sorted((row["tenant"], row["_id"]) for row in rows(ctx) if not row["_deleted"])
    assert present == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("b", 77)]

    before = [document for tenant, document in tenants.documents() if tenant == "a"]
    time = tenants.client.admin.command("ping")["operationTime"]
    tenants["a"].delete_many({})
    tenants["b"].delete_one({"_id": 0})
    land(ctx)
    restored = tmp_path / "restored"
    name = f"{tenants.prefix}a.orders"
    run_restore(ctx.with_spark(), as_of=f"{time.time},{time.inc}", collections=[name], to=restored)
    (file,) = restored.rglob("*.bson")
    with file.open("rb") as content:
        assert sorted(map(bson.encode, bson.decode_file_iter(content))) == sorted(before)


def lose_row_and_keep_another(ctx: LazyContext) -> None:
    """Take a document of each tenant out of silver, and put one in that the source does not have."""
    table = ctx.tables.folder(ORDERS).table()
    content = table.to_pyarrow_table()
    odd = [
        {**row, "_key": row["_key"].removesuffix("2") + "77", "_id": 77, "_position": f"{1:016x}:a"}
        for row in content.to_pylist()
        if row["_id"] == 2
    ]
    table.delete("_id = 2")
    write_deltalake(ctx.tables.folder(ORDERS).table(), pa.Table.from_pylist(odd, content.schema), mode="append")


# promises 2 and 3
# why long: a compaction and three erasures by Spark
@pytest.mark.long
def test_compaction_dead_letters_and_an_erasure_of_one_tenant_reach_its_table(
    spark: SparkSession, mongo_uri: str, tenants: Tenants, tmp_path: Path
) -> None:
    ctx = by_both(spark, tenants.settings(mongo_uri, tmp_path / "lake"))
    alone = by_both(spark, tenants.settings(mongo_uri, tmp_path / "lake", tables={}))
    for name in "ab":
        tenants[name].insert_many([{"_id": n, "n": n} for n in range(3)])
    land(alone)
    tenants["a"].insert_one(without_utf8({"_id": 9, "text": "XXXX"}))
    land(ctx)
    (letter,) = list_dead_letters(ctx.with_spark(), status="open")
    assert letter["key"] == "9"
    tenants["a"].update_one({"_id": 9}, {"$set": {"text": "mended"}})
    assert [one.status for one in replay(ctx.with_spark())] == ["replayed"]
    for n in range(3):
        tenants["b"].update_one({"_id": n}, {"$inc": {"n": 1}})
        tenants["a"].update_one({"_id": 1}, {"$inc": {"n": 1}})
        land(ctx)
    tenants["a"].delete_many({"_id": {"$in": [1, 2]}})
    tenants["b"].insert_one({"_id": 3})  # the position of the source must not be that of a document to erase
    land(ctx)
    assert_equal(ctx, tenants)

    compact(ctx.with_spark())
    assert ctx.with_spark().tables.read(bronze_table("test")).where("op = 'u'").count() < 6
    set_desired_state(ctx, "stopped", by="test", why=None)
    rebuilt = run_rebuild(ctx, "orders")
    assert (rebuilt.missing, rebuilt.extra, rebuilt.different) == (0, 0, 0)
    assert_equal(ctx, tenants)

    name = f"{tenants.prefix}a.orders"
    own = [one for one in ctx.tables.names("silver") if one.name.endswith("a__orders")]
    assert len(own) == 1
    result = run_erase(ctx.with_spark(), name, keys=["1"], by="test", dry_run=False)
    assert {table for table, count in result.rows.items() if count} == {"bronze.test", str(ORDERS), str(own[0])}
    run_erase(alone.with_spark(), name, keys=["2"], by="test", dry_run=False)
    for table in (ORDERS, own[0]):
        present = [(row["_id"], row["_key"]) for row in rows(ctx, table)]
        assert not [key for identifier, key in present if identifier in (1, 2) and f"{tenants.prefix}b" not in key]
    assert sum(row["tenant"] == "b" for row in rows(ctx)) == 4
