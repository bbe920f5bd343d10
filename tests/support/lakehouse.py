"""Shared by integration, property and fault tests: a pipeline over one database, and the comparison with the source."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

import bson
import pytest
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from lake_place import NATIVE_PLACES, PLACE, lake_settings
from pymongo.database import Database
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from strandline.bronze.native_engine import NativeEngine
from strandline.bronze.spark_engine import SparkEngine
from strandline.bronze.writer import BronzeWriter
from strandline.io.delta_log.commits import LogFolder
from strandline.io.delta_log.local_folder import LocalFolder
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.io.tables.spark_tables import Tables
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.context import JobContext, tables_of
from strandline.jobs.maintenance import bronze_compaction
from strandline.jobs.maintenance.tombstone_purge import PurgeResult, TombstonePurge
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.bson.merge_key import document_merge_key
from strandline.model.shape import Compatibility
from strandline.model.table_schemas import bronze_table
from strandline.model.tables import TableName, safe_name
from strandline.settings.configuration import Settings
from strandline.settings.silver import SilverSettings
from strandline.silver.owned_table import shape_in
from strandline.silver.purge_watermark import WatermarkBound
from strandline.silver.typed_diff import unlike_documents


@dataclass(frozen=True)
class Demo:
    """A demo that has ended: its lake, and what its terminal showed."""

    lake: Path
    shown: str


COMPATIBILITY: Compatibility = "native" if os.environ.get("TEST_COMPATIBILITY") == "native" else "portable"
"""Compatibility of silver tables in tests that do not choose one."""


def without_utf8(document: dict[str, Any]) -> RawBSONDocument:
    """Return *document* with bytes that are no UTF-8 in the place of each text ``XXXX``, as no driver writes it."""
    return RawBSONDocument(bson.encode(document).replace(b"XXXX", b"\xff\xfe\xfd\xfc"))


_RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)


def settings_for(uri: str, database: str, root: Path | str, **capture: Any) -> Settings:
    """Return settings of a pipeline over one database into one folder.

    For speed notifications are only logged, and the native engine writes bronze, where it can.
    """
    is_native = PLACE in NATIVE_PLACES and "SPARK_REMOTE" not in os.environ
    quick = {
        "heartbeat_interval_ms": 100,
        "notification_enabled_channels": ("log",),
        "engine": "native" if is_native else "spark",
    }
    return Settings(
        source={"name": "test", "uri": uri},  # type: ignore[arg-type]  # why: pydantic builds the section
        capture={"scope": "database", "target": database, **quick, **capture},  # type: ignore[arg-type]  # why: as above
        lake=lake_settings(root),  # type: ignore[arg-type]  # why: as above
        silver=SilverSettings(compatibility=COMPATIBILITY),
    )


def pipeline(spark: SparkSession, uri: str, database: str, root: Path | str, **capture: Any) -> JobContext:
    settings = settings_for(uri, database, root, **capture)
    return JobContext(settings, spark, tables_of(spark, settings.lake_location, settings))


def spark_pipeline(spark: SparkSession, uri: str, database: str, root: Path | str, **capture: Any) -> JobContext:
    """The same, but Spark writes bronze."""
    return pipeline(spark, uri, database, root, engine="spark", **capture)


def bronze_writer(
    tables: Tables,
    source: str = "test",
    writer: str = "w",
    clock_us: Callable[[], int] = lambda: 0,
    *,
    native: bool = False,
    stored_json: bool = False,
) -> BronzeWriter:
    """A writer of bronze with either engine."""
    if native:
        folder = DeltaRsTables(tables.lake)
        return BronzeWriter(
            folder,
            source,
            writer,
            clock_us,
            stored_json=stored_json,
            open_engine=partial(NativeEngine.open, folder, workers=1),
        )
    opening = partial(SparkEngine.open, tables)
    return BronzeWriter(tables, source, writer, clock_us, stored_json=stored_json, open_engine=opening)


def with_silver(ctx: JobContext, **silver: Any) -> JobContext:
    """The same pipeline with other settings of silver."""
    chosen = SilverSettings(**{"engine": ctx.settings.silver.engine, **silver})
    return JobContext(ctx.settings.model_copy(update={"silver": chosen}), ctx.spark, ctx.tables)


def land(ctx: JobContext) -> None:
    """All that has happened at the source until now, in bronze and silver."""
    run_capture(ctx, once=True)
    run_silver(ctx)


def purge(ctx: JobContext) -> int:
    """Tombstones go as soon as they may, without a time for which they are kept. Returns how many went."""
    maintenance = ctx.settings.maintenance.model_copy(update={"tombstone_retention_hours": 0})
    purge = TombstonePurge.read(replace(ctx, settings=ctx.settings.model_copy(update={"maintenance": maintenance})))
    if purge is None:
        return 0
    with ThreadPoolExecutor(maintenance.max_threads) as pool:
        return sum(purged.rows for purged in pool.map(purge.run, ctx.tables.names("silver")))


def compact(ctx: JobContext, *, below: str | None = None, dry_run: bool = False) -> PurgeResult:
    """Compact bronze as if all events but those of the newest moment were old enough, or those *below* a position."""
    maintenance = ctx.settings.maintenance.model_copy(update={"bronze_retention_days": 0})
    old = replace(ctx, settings=ctx.settings.model_copy(update={"maintenance": maintenance}))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bronze_compaction, "_STEP_SECONDS", 0)
        patched.setattr("strandline.bronze.compact_files._MIN_SHARE", 0)
        if below is not None:
            patched.setattr(bronze_compaction, "stream_bound", lambda *_: WatermarkBound(below))
        return bronze_compaction.compact_bronze(old, bronze_table(ctx.settings.source.name), dry_run=dry_run)


def bronze(ctx: JobContext) -> DataFrame:
    return ctx.tables.read(bronze_table(ctx.settings.source.name))


def silver(ctx: JobContext, collection: str) -> DataFrame:
    """The table of a collection; or a table, such as an archive, by its own name."""
    own = TableName("silver", collection)
    return ctx.tables.read(own if ctx.tables.exists(own) else TableName("silver", safe_name(collection)))


def restore(ctx: JobContext, table: TableName, version: int) -> None:
    ctx.spark.sql(f"RESTORE TABLE {ctx.tables.lake.sql(table)} TO VERSION AS OF {version}")


def forget_log(tables: Tables, table: TableName) -> None:
    """As Delta cleans a log up: all that is older than a checkpoint goes."""
    tables.set_properties(table, {"delta.checkpointInterval": "1"})
    folder = Path(tables.lake.path(table)) / "_delta_log"
    log = LogFolder(LocalFolder(folder.parent))
    assert log.checkpoint() == log.newest()
    for version in range(log.checkpoint()):
        (folder / f"{version:020}.json").unlink(missing_ok=True)


def documents_in_source(database: Database[Any], collection: str) -> dict[str, bytes]:
    """Raw documents by merge key."""
    found = database.get_collection(collection, codec_options=_RAW).find()
    return {document_merge_key(bytes(document.raw)): bytes(document.raw) for document in found}


def documents_in_silver(ctx: JobContext, collection: str) -> dict[str, bytes]:
    """Of one table, living raw documents by merge key."""
    return all_in_silver(ctx, collection)[collection]


def all_in_silver(ctx: JobContext, *collections: str) -> dict[str, dict[str, bytes]]:
    """The same of each table, in one query."""
    living = (
        silver(ctx, name).where(~F.col("_deleted")).select(F.lit(name).alias("table"), "_key", "_document")
        for name in collections
    )
    found: dict[str, dict[str, bytes]] = {name: {} for name in collections}
    for table, key, document in reduce(DataFrame.unionAll, living).collect() if collections else ():
        assert key not in found[table], f"{key} stands in {table} twice"
        found[table][key] = bytes(document)
    return found


def assert_equal_to_source(ctx: JobContext, database: Database[Any], *collections: str) -> None:
    """Live silver equals the source, document by document, byte for byte of BSON; columns show their documents."""
    for collection, lake in all_in_silver(ctx, *collections).items():
        source = documents_in_source(database, collection)
        assert {key: bson.decode(raw) for key, raw in lake.items() if source.get(key) != raw} == {}
        assert lake == source
    assert_columns_show_documents(ctx, *(TableName("silver", safe_name(name)) for name in collections))


def assert_columns_show_documents(ctx: JobContext, *tables: TableName) -> None:
    """Every column and ``_rescued`` of each row has what its ``_document`` has, in one query.

    A value that was rescued before its column came is right.
    """
    compared = [
        unlike_documents(ctx.tables.read(name), shape_in(ctx.tables.properties(name)), own_rules_for=1).select(
            F.lit(str(name)).alias("table"), "key", "wrong"
        )
        for name in tables
    ]
    wrong = reduce(DataFrame.unionAll, compared).where("size(wrong) > 0").collect() if compared else []
    assert [tuple(row) for row in wrong] == []


def assert_streamed_exactly_once(ctx: JobContext) -> None:
    """Every streamed position stands in bronze once, batches have no hole, and each has one token."""
    streamed = bronze(ctx).where(F.col("batch").isNotNull())
    positions = [row[0] for row in streamed.where(F.col("position").isNotNull()).select("position").collect()]
    assert len(positions) == len(set(positions))
    batches = sorted(row[0] for row in streamed.where(F.col("resume_token").isNotNull()).select("batch").collect())
    assert batches == list(range(1, len(batches) + 1))
