"""Make a small lake of the present format, with its MongoDB. Run it by hand, once for each format.

Tests of later releases open its result, ``tests/lakes/format-N.tar.xz``. The archive holds ``lake``, ``mongod`` (data
folder of the embedded server, whose oplog reaches back to the first event) and ``conf``. The source is ahead of the
lake: after `strandline run --once` silver must equal the source. Later events replace every inexact document.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import bson
import yaml
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.database import Database

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "support"), str(HERE.parent.parent / "pipelines")]

from lakehouse import purge  # noqa: E402  # why: the path above

from strandline.jobs.capture.job import run_capture  # noqa: E402  # why: the path above
from strandline.jobs.context import JobContext, open_context  # noqa: E402  # why: as above
from strandline.jobs.gold.job import refresh_gold  # noqa: E402  # why: as above
from strandline.jobs.offsets.job import alter_offset, reset_offset  # noqa: E402  # why: as above
from strandline.jobs.offsets.life_cycle import set_desired_state  # noqa: E402  # why: as above
from strandline.jobs.reconcile.job import run_reconcile  # noqa: E402  # why: as above
from strandline.jobs.silver.job import run_silver  # noqa: E402  # why: as above
from strandline.jobs.snapshot.send_signal import send_signal  # noqa: E402  # why: as above
from strandline.model.tables import TableName  # noqa: E402  # why: as above
from strandline.settings.configuration import Settings  # noqa: E402  # why: as above
from strandline.source.mongod import EmbeddedMongod  # noqa: E402  # why: as above

Db = Database[dict[str, Any]]

CONF = """source: {name: shop}
capture: {scope: database, target: shop, engine: native, heartbeat_interval_ms: 100,
  cursor_oversize_handling_mode: skip, cursor_oversize_skip_threshold: 2000}
lake: {root: lake}
silver: {history: scd2, history_collections: [shop.orders, shop.patched]}
gold: {sql_dir: conf/gold}
quality: {suites_dir: conf/quality}
"""
GOLD = """-- materialized: incremental
-- keys: city
select city, count(*) as people, sum(age) as years from silver.people where not _deleted group by city
"""
SUITE = """table: silver.people
where: NOT _deleted
on_failure: quarantine
expectations: [{type: expect_column_values_to_be_between, column: age, min_value: 0}]
"""


def context(folder: Path, uri: str, **capture: Any) -> JobContext:
    """The pipeline as ``conf`` has it, with other settings of the capture."""
    sections = yaml.safe_load(CONF)
    sections["source"]["uri"] = uri
    sections["capture"] |= capture
    sections["lake"]["root"] = str(folder / "lake")
    sections["gold"]["sql_dir"] = str(folder / "conf" / "gold")
    sections["quality"]["suites_dir"] = str(folder / "conf" / "quality")
    return open_context(Settings(**sections))


def land(ctx: JobContext) -> None:
    run_capture(ctx, once=True)
    run_silver(ctx)


def broken(document: dict[str, Any]) -> RawBSONDocument:
    """A document whose text is no UTF-8: silver keeps it as bytes, with a dead letter."""
    return RawBSONDocument(bson.encode(document).replace(b"XXXX", b"\xff\xfe\xfd\xfc"))


def fill(shop: Db) -> None:
    shop.orders.insert_many(
        [{"_id": n, "total": n * 1.5, "lines": [{"sku": "a", "qty": n}], "unit price": n} for n in range(12)]
    )
    shop.patched.insert_many([{"_id": n, "n": 0, "a": {"b": 1}} for n in range(6)])
    shop.people.insert_many([{"_id": n, "city": "Rome" if n % 2 else "Oslo", "age": 20 + n} for n in range(8)])
    shop.old_name.insert_many([{"_id": n, "v": n} for n in range(3)])
    shop.gone.insert_one({"_id": 1, "v": 1})
    shop.create_collection("capped", capped=True, size=4096).insert_one({"_id": 1, "n": 0})
    shop["Odd Name.x"].insert_one({"_id": {"k": 1}, "Ü": 1})


def captured(folder: Path, uri: str, shop: Db) -> JobContext:
    """A lake in which every kind of row, table and property is."""
    ctx = context(folder, uri)
    patches = context(folder, uri, mode="change_streams")
    fill(shop)
    land(ctx)
    shop.orders.update_many({"_id": {"$lt": 3}}, {"$set": {"total": 9, "shipped.at": "x"}})
    shop.orders.delete_one({"_id": 11})
    shop.orders.insert_one(broken({"_id": 50, "text": "XXXX"}))  # type: ignore[arg-type]  # why: raw documents go as they are
    shop.orders.insert_one({"_id": 51, "total": "a text"})
    shop.people.insert_one({"_id": 20, "city": "Rome", "age": -1})
    shop.old_name.rename("new_name")
    shop.gone.drop()
    land(ctx)
    run_capture(patches, once=True)
    shop.orders.update_one({"_id": 1}, {"$set": {"total": 10}})  # onto a document that was looked up: it waits
    shop.patched.update_one({"_id": 1}, {"$set": {"a.b": 2}})  # two readings
    shop.patched.update_one({"_id": 2}, {"$inc": {"n": 1}})
    shop.patched.replace_one({"_id": 3}, {"n": 1, "blob": "x" * 5_000})  # oversize
    shop.capped.update_one({"_id": 1}, {"$inc": {"n": 1}})
    land(patches)
    set_desired_state(ctx, "stopped", by="make", why="a gap")
    shop.patched.update_one({"_id": 4}, {"$inc": {"n": 1}})
    alter_offset(ctx, "now", by="make", why="a gap")
    set_desired_state(ctx, "running", by="make", why=None)
    shop.patched.update_one({"_id": 4}, {"$set": {"m": 1}})
    land(patches)
    return ctx


def repaired_and_built(ctx: JobContext) -> None:
    send_signal(ctx, "execute-snapshot", {"data-collections": [r"shop\.people"], "type": "incremental"}, by="make")
    land(ctx)
    ctx.tables.update(TableName("silver", "people"), {"_document": "NULL"}, "_key = '3'")
    run_reconcile(ctx, collections=["shop.people"], repairs=True)
    run_silver(ctx)
    refresh_gold(ctx)
    set_desired_state(ctx, "stopped", by="make", why="a reset")
    reset_offset(ctx, by="make", why="a reset")
    set_desired_state(ctx, "running", by="make", why=None)
    land(ctx)
    purge(ctx)
    with_archives(ctx)


def with_archives(ctx: JobContext) -> None:
    """A dropped collection whose rows went to a table of their own."""
    with MongoClient[dict[str, Any]](ctx.settings.source.uri.get_secret_value()) as client:  # type: ignore[union-attr]  # why: it is set
        client.shop.archived.insert_many([{"_id": n} for n in range(2)])
        land(ctx)
        client.shop.archived.drop()
    silver = ctx.settings.silver.model_copy(update={"on_drop": "archive"})
    land(JobContext(ctx.settings.model_copy(update={"silver": silver}), ctx.spark, ctx.tables))


def leave_pending(folder: Path, uri: str, shop: Db) -> None:
    """After the snapshot of the reset, which healed what there was: the same once more."""
    ctx, patches = context(folder, uri), context(folder, uri, mode="change_streams")
    shop.orders.update_one({"_id": 2}, {"$set": {"total": 11}})
    land(ctx)
    run_capture(patches, once=True)
    shop.orders.update_one({"_id": 2}, {"$set": {"total": 12}})
    shop.patched.update_one({"_id": 1}, {"$set": {"a.b": 3}})
    shop.patched.replace_one({"_id": 3}, {"n": 2, "blob": "x" * 5_000})
    shop.capped.update_one({"_id": 1}, {"$inc": {"n": 1}})
    land(patches)
    set_desired_state(ctx, "stopped", by="make", why="a gap")
    shop.patched.update_one({"_id": 4}, {"$inc": {"n": 1}})
    alter_offset(ctx, "now", by="make", why="a gap")
    set_desired_state(ctx, "running", by="make", why=None)
    shop.patched.update_one({"_id": 4}, {"$set": {"m": 2}})
    land(patches)


def go_ahead(shop: Db) -> None:
    """Write changes that the lake has not read, with a newer document for each inexact one."""
    shop.orders.update_many({}, {"$inc": {"seen": 1}})
    shop.patched.update_many({"_id": {"$ne": 3}}, {"$inc": {"n": 10}})
    shop.patched.replace_one({"_id": 3}, {"n": 3})
    shop.capped.update_many({}, {"$inc": {"n": 5}})
    shop.people.delete_one({"_id": 2})
    shop.people.insert_one({"_id": 30, "city": "Lima", "age": 40})
    shop.new_name.insert_one({"_id": 9, "v": 9})
    shop.gone.insert_one({"_id": 2, "v": "it lives again"})


def pack(folder: Path, archive: Path) -> None:
    for name in ("diagnostic.data", "mongod.lock", "mongod.log", "WiredTiger.lock"):
        found = folder / "mongod" / "0" / name
        shutil.rmtree(found) if found.is_dir() else found.unlink(missing_ok=True)
    for file in (folder / "mongod" / "0" / "journal").glob("WiredTigerPreplog.*"):
        file.unlink()
    for file in [*folder.rglob("*.crc"), *(folder / "lake").rglob("_temporary")]:
        file.unlink()
    with tarfile.open(archive, "w:xz", preset=9) as packed:
        for part in ("lake", "mongod", "conf"):
            packed.add(folder / part, part)


def main(archive: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path, text in {"base.yml": CONF, "gold/by_city.sql": GOLD, "quality/people.yml": SUITE}.items():
            file = folder / "conf" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        with (
            EmbeddedMongod(data_dir=folder / "mongod", oplog_size_mb=16) as server,
            MongoClient[dict[str, Any]](server.uri) as client,
        ):
            ctx = captured(folder, server.uri, client.shop)
            repaired_and_built(ctx)
            leave_pending(folder, server.uri, client.shop)
            go_ahead(client.shop)
        pack(folder, archive)
    print(f"{archive}: {archive.stat().st_size:,} bytes")  # noqa: T201  # why: a script


if __name__ == "__main__":
    main(Path(sys.argv[1]))
