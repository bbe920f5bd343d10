"""Random histories: silver equals the source for any order, batches, snapshots and crashes.

Many histories share one collection, each with its own keys: a MERGE of a thousand keys costs no more than one of three.
Any failure replays with the seed that it prints: ``pytest tests/property --hypothesis-seed=…``.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import bson
import bson.json_util
import pytest
from bronze_changes import CHANGES_DDL
from crashing import CrashingTables, until_it_ends
from hypothesis import HealthCheck, Phase, given, settings
from lakehouse import (
    assert_equal_to_source,
    assert_streamed_exactly_once,
    bronze,
    compact,
    land,
    pipeline,
    purge,
    silver,
    with_silver,
)
from pymongo import MongoClient
from pymongo.collection import Collection
from pyspark.sql import DataFrame, SparkSession
from seeds import SEEDS

from strandline.errors import ConfigurationError
from strandline.io.tables.spark_tables import Tables
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext
from strandline.jobs.erase.keep_erased import keep_erased
from strandline.jobs.erase.run_erase import run_erase
from strandline.jobs.silver.rebuild import run_rebuild
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.bson.merge_key import document_merge_key
from strandline.model.json_input import id_document
from strandline.model.shape import Compatibility, Shape
from strandline.model.tables import Lake, TableName
from strandline.silver.batch_profile import profile_batch
from strandline.silver.decode.rows import typed_rows
from strandline.silver.latest import latest_per_key
from strandline.silver.schema.census import CensusTaker
from strandline.silver.schema.evolution import ColumnLimits, evolve
from strandline.silver.silver_table import SilverTable

_COMPARED = ("_key", "_position", "_base_position", "_op", "_deleted", "_document", "v")

# One example is a whole pipeline run: shrinking would take hours, and a slow machine is no failure.
_few = settings(deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None)


def random_changes(chance: random.Random, keys: int) -> list[tuple[Any, ...]]:
    """Bronze rows of independent random histories, one for each key, with READs at any moment."""
    rows = []
    for key in range(keys):
        document: dict[str, Any] | None = None
        for step in range(chance.randint(1, 8)):
            position, op = f"{step:016x}:82{step:04X}", "d"
            if document is None or chance.random() < 0.7:
                op = "c" if document is None else "u"
                document = {"_id": key, "v": chance.choice([step, float(step), "text", None])}
            else:
                document = None
            rows.append(_row(key, position, op, document))
            if document is not None and chance.random() < 0.4:
                rows.append(_row(key, f"{step:016x}:~", "r", document))
            if op == "u" and chance.random() < 0.2:  # the lookup came too late
                rows[-1] = (
                    (*rows[-1][:5], None, bson.encode({"fullDocument": None}), 0, None)
                    if rows[-1][2] == "u"
                    else rows[-1]
                )
    return rows


def _row(key: int, position: str, op: str, document: Mapping[str, Any] | None) -> tuple[Any, ...]:
    envelope = bson.encode(document or {}) if op == "r" else bson.encode({"fullDocument": document} if document else {})
    return (
        str(key),
        position,
        op,
        None,
        None,
        None if document is None else len(bson.encode(document)),
        envelope,
        0,
        None,
    )


def merged(
    spark: SparkSession, root: Path, batches: list[list[tuple[Any, ...]]], shape: Shape, kind: Compatibility
) -> list[tuple[Any, ...]]:
    table = SilverTable(Tables(spark, Lake(root=str(root / uuid.uuid4().hex))), TableName("silver", "t"))
    table.open("db.t", "test", kind)
    _, changes = evolve(Shape("struct"), CensusTaker(8).count([]), ColumnLimits(compatibility=kind))
    assert changes == []
    _, changes = evolve(Shape("struct"), _census(batches), ColumnLimits(compatibility=kind))
    table.change_schema(shape, changes, before=Shape("struct"))
    for batch in batches:
        new = spark.createDataFrame(batch, CHANGES_DDL)
        rows = typed_rows(latest_per_key(new), shape, kind)
        table.merge(rows, keys=profile_batch(new, max_depth=8).keys, deletes="soft")
    return _content(table.tables.read(table.name))


def _census(batches: list[list[tuple[Any, ...]]]) -> Any:
    documents = []
    for row in (row for batch in batches for row in batch if row[5] is not None):
        envelope = bson.decode(row[6])
        documents.append(row[6] if row[2] == "r" else bson.encode(envelope["fullDocument"]))
    return CensusTaker(8).count(documents)


def _content(rows: DataFrame) -> list[tuple[Any, ...]]:
    is_variant = dict(rows.dtypes)["v"] == "variant"
    found = rows.selectExpr(
        *(f"to_json({name})" if name == "v" and is_variant else name for name in _COMPARED)
    ).collect()
    return sorted(
        (tuple(bytes(value) if isinstance(value, bytearray) else value for value in row) for row in found),
        key=lambda row: row[0],
    )


# promise 2; scenario: C07, C12, C13, D06, D09
@pytest.mark.check
@pytest.mark.parametrize("kind", ["portable", pytest.param("native", marks=pytest.mark.long)])
@settings(_few, max_examples=1)
@given(seed=SEEDS)
def test_any_order_any_batching_and_any_repetition_give_the_same_silver(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, kind: Compatibility, seed: int
) -> None:
    chance = random.Random(seed)
    rows = random_changes(chance, keys=150)
    messy = rows + chance.sample(rows, len(rows) // 3)
    chance.shuffle(messy)
    cuts = sorted(chance.sample(range(1, len(messy)), 2))
    batches = [messy[: cuts[0]], messy[cuts[0] : cuts[1]], messy[cuts[1] :]]
    shape, _ = evolve(Shape("struct"), _census([rows]), ColumnLimits(compatibility=kind))
    root = tmp_path_factory.mktemp("merge")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            "strandline.silver.key_filter.MAX_LISTED_KEYS", len(messy) // 3
        )  # some batches list their keys, others only bound them
        assert merged(spark, root, batches, shape, kind) == merged(spark, root, [rows], shape, kind)


def write_histories(collection: Collection[dict[str, Any]], chance: random.Random, operations: int) -> None:
    for _ in range(operations):
        key: Any = {"h": chance.randrange(40), "k": chance.randrange(3)}
        match chance.randrange(5):
            case 0:
                collection.delete_one({"_id": key})
            case 1:
                collection.replace_one(
                    {"_id": key}, {"_id": key, "v": chance.choice([1, 2.5, "x", None, [1, {"a": 2}]])}, upsert=True
                )
            case _:
                collection.update_one(
                    {"_id": key}, {"$inc": {"n": 1}, "$push": {"log": chance.randrange(9)}}, upsert=True
                )


# promises 1 and 2; scenario: A01, A18, D09, E01, E03, E05, I06, T08
def pipeline_through_crashes(
    spark: SparkSession,
    mongo_uri: str,
    mongo: MongoClient[dict[str, Any]],
    root: Path,
    seed: int,
    *,
    engines: Sequence[str] = ("spark",),
) -> None:
    chance = random.Random(seed)
    database = mongo[f"p_{uuid.uuid4().hex[:10]}"]
    ctx = pipeline(
        spark,
        mongo_uri,
        database.name,
        root,
        engine=chance.choice(engines),
        snapshot_chunk_size=chance.choice([10, 30, 1000]),
        max_batch_size=chance.choice([7, 50, 5000]),
        mode=chance.choice(["change_streams", "change_streams_update_full"]),
    )
    ctx = with_silver(ctx, engine=chance.choice(["auto", "spark"]))
    tables = CrashingTables(spark, ctx.tables.lake)
    crashing, compacts, erases = JobContext(ctx.settings, spark, tables), chance.random() < 0.5, chance.random() < 0.5
    try:
        write_histories(database.a, chance, 150)
        with pytest.MonkeyPatch.context() as patched:
            tables.counts_native_commits(patched)
            patched.setattr("strandline.silver.key_filter.MAX_LISTED_KEYS", chance.choice([2, 1000]))
            patched.setattr("strandline.silver.split_merge.MAX_DENSE_ROWS_PER_CHANGE", 0)
            patched.setattr(
                "strandline.silver.split_merge.MIN_KEYS_FOR_SPLIT", 2
            )  # what is not listed goes in two MERGEs
            for _ in range(2):
                until_it_ends(lambda context: run_capture(context, once=True), crashing, chance)
                write_histories(database.a, chance, 100)
                until_it_ends(run_silver, crashing, chance)
                until_it_ends(purge, crashing, chance)
                if compacts:
                    until_it_ends(compact, crashing, chance)
                if erases:
                    erase_some(crashing, database.a, chance)
            run_capture(ctx, once=True)
            run_silver(ctx)
        assert_equal_to_source(ctx, database, "a")
        if compacts or erases:
            compact(ctx)
            rebuilt = run_rebuild(ctx, "silver.a", dry_run=True)
            assert (rebuilt.missing, rebuilt.extra, rebuilt.different) == (0, 0, 0)
        else:
            assert_streamed_exactly_once(ctx)
    finally:
        mongo.drop_database(database.name)


def erase_some(crashing: JobContext, collection: Collection[dict[str, Any]], chance: random.Random) -> None:
    """Delete ten documents, and erase them."""
    documents = list(collection.find({"_id.h": {"$exists": True}}))
    keys = [bson.json_util.dumps(one["_id"]) for one in chance.sample(documents, min(10, len(documents)))]
    if not keys:
        return
    collection.delete_many({"_id": {"$in": list(map(bson.json_util.loads, keys))}})
    collection.insert_one({"v": "moves the position on"})
    land(crashing)
    until_it_ends(lambda ctx: erase(ctx, collection, keys), crashing, chance)
    listed = ", ".join(f"'{document_merge_key(id_document(key))}'" for key in keys)
    assert bronze(crashing).where(f"key IN ({listed})").isEmpty()
    assert silver(crashing, "a").where(f"_key IN ({listed})").isEmpty()


def erase(ctx: JobContext, collection: Collection[dict[str, Any]], keys: Sequence[str]) -> None:
    """Erase documents, or what an interrupted erasure has left of them."""
    try:
        run_erase(ctx, f"{collection.database.name}.{collection.name}", keys=keys, by="ops", dry_run=False)
    except ConfigurationError as error:
        if "the lake has no row of" not in error.message:
            raise
        keep_erased(ctx)


@settings(_few, max_examples=1)
@given(seed=SEEDS)
@pytest.mark.long
def test_a_pipeline_that_crashes_at_random_commits_converges(
    spark: SparkSession,
    mongo_uri: str,
    mongo: MongoClient[dict[str, Any]],
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
) -> None:
    pipeline_through_crashes(spark, mongo_uri, mongo, tmp_path_factory.mktemp("lake"), seed)


@pytest.mark.long
@pytest.mark.parametrize("part", range(5))  # so that every process takes its share
@settings(_few, max_examples=5)
@given(seed=SEEDS)
def test_a_pipeline_that_crashes_at_random_commits_converges_at_length(
    spark: SparkSession,
    mongo_uri: str,
    mongo: MongoClient[dict[str, Any]],
    tmp_path_factory: pytest.TempPathFactory,
    part: int,
    seed: int,
) -> None:
    root = tmp_path_factory.mktemp(f"lake{part}")
    pipeline_through_crashes(spark, mongo_uri, mongo, root, seed, engines=("spark", "native"))
