"""Every command on one lake in a catalog, in a process with a Spark of its own. Run by tests with the settings' folder.

The process ends with an error if a step fails, or if silver differs from the source after a step.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from lakehouse import assert_equal_to_source
from processes import QUICK_JVM
from pymongo import MongoClient
from pymongo.database import Database
from starlette.testclient import TestClient
from ui_lake import read

from strandline.cli import app
from strandline.commands.ui import watched_lake
from strandline.jobs.context import JobContext, open_context
from strandline.model.table_schemas import bronze_table
from strandline.model.tables import TableName
from strandline.settings.configuration import Settings, load_settings
from strandline.web.pages import PAGES
from strandline.web.server import Access, application

VIEW, TABLE = TableName("gold", "large_orders"), TableName("gold", "totals")
GOLD = {
    "large_orders.sql": "-- description: it's a view\n"
    "select _id, total from silver.orders where total > 10 and not _deleted",
    "totals.sql": "-- materialized: table\nselect count(*) as orders, sum(total) as total from gold.large_orders",
}


def run_in_a_process(folder: Path, mongo_uri: str, database: str, lake: dict[str, Any], spark: dict[str, Any]) -> None:
    """Run this module. Its settings, and what the process writes into its own folder, are in *folder*."""
    settings = {
        "source": {"name": "test", "uri": mongo_uri},
        "capture": {"scope": "database", "target": database, "heartbeat_interval_ms": 100},
        "gold": {"sql_dir": str(folder / "gold")},
        "lake": lake,
        "spark": spark,
    }
    (folder / "base.yml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    root = Path(__file__).parents[2]
    environ = {name: value for name, value in os.environ.items() if name != "SPARK_REMOTE" or not spark.get("master")}
    environ |= QUICK_JVM | {
        "PYTHONPATH": f"{root / 'pipelines'}:{root / 'tests' / 'support'}",
        "STRANDLINE_CONF": str(folder),
    }
    command = [sys.executable, __file__, str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environ, cwd=folder)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Exception" not in ran.stderr, ran.stderr


def typed(*arguments: str) -> None:
    """Run one command as a user types it."""
    print("$ strandline", *arguments, flush=True)  # noqa: T201  # why: the test shows how far the steps went
    assert app(list(arguments), standalone_mode=False) in (None, 0), arguments


def names(ctx: JobContext, layer: str) -> list[str]:
    return [table.name for table in ctx.tables.names(layer)]


def every_command(ctx: JobContext, database: Database[dict[str, Any]]) -> None:
    """All commands that read or write tables, in the order in which a user meets them."""
    assert names(ctx, "silver") == [], "no schema is there yet"
    database.orders.insert_many([{"_id": number, "total": number} for number in range(30)])
    typed("run", "--once")
    assert_equal_to_source(ctx, database, "orders")
    assert ctx.tables.read(TABLE).collect() == [(19, sum(range(11, 30)))]

    database.orders.update_many({"_id": {"$lt": 5}}, {"$set": {"total": 100.5, "Größe `x`": "'"}})
    database.orders.delete_one({"_id": 29})
    typed("run", "--once")
    assert_equal_to_source(ctx, database, "orders")
    # 100.5 fits no BIGINT column: the five totals are in `_rescued` until a rebuild
    assert ctx.tables.read(VIEW).count() == ctx.tables.read(TABLE).collect()[0]["orders"] == 18
    assert (names(ctx, "gold"), names(ctx, "silver")) == (["totals"], ["orders"]), "a view is no table"

    see_every_page(ctx.settings)
    typed("doctor")
    typed("status")
    typed("offsets", "show")
    typed("sql", "select count(*) as n from gold.large_orders v join silver.orders o on o._id = v._id")
    typed("maintain")
    typed("reconcile")
    assert_equal_to_source(ctx, database, "orders")
    database.orders.delete_one({"_id": 7})
    database.orders.insert_one({"_id": 100, "total": 0})
    typed("run", "--once")
    typed("erase", "--collection", f"{database.name}.orders", "--key", "7", "--yes")
    assert ctx.tables.read(bronze_table("test")).where("key = '7'").isEmpty()
    typed("maintain")
    assert_equal_to_source(ctx, database, "orders")

    typed("stop")
    typed("rebuild", "silver.orders")
    assert [name for name in names(ctx, "control") if name.startswith("rebuild")] == []
    assert_equal_to_source(ctx, database, "orders")
    assert ctx.tables.read(VIEW).count() == 23
    typed("delete", "--yes")
    assert names(ctx, "silver") == names(ctx, "bronze") == []


def see_every_page(settings: Settings) -> None:
    """Read every page of the web page, and ask the API."""
    access = Access.of("127.0.0.1", 8081, api=True, known_token=None)
    app, headers = application(watched_lake(settings), access, []), {"Authorization": f"Bearer {access.token}"}
    with TestClient(app, base_url="http://localhost", headers=headers) as client:
        pages = {page.path: read(client, page.path) for page in PAGES}
        for path, text in pages.items():
            print("page", path, flush=True)  # noqa: T201  # why: the test shows how far the steps went
            assert "Not read:" not in text, text
        assert "silver.orders" in pages["/silver"]
        assert "gold.totals" in pages["/gold"]
        assert "bronze.test" in pages["/maintenance"]
        assert client.get("/connectors/test/status").json()["connector"]["state"] == "RUNNING"
        assert client.put("/connectors/test/pause").status_code == 202
        assert client.put("/connectors/test/resume").status_code == 202


def main(folder: Path) -> None:
    (folder / "gold").mkdir()
    for name, sql in GOLD.items():
        (folder / "gold" / name).write_text(sql, encoding="utf-8")
    settings = load_settings("local", folder)
    with MongoClient[dict[str, Any]](settings.source.uri.get_secret_value()) as client:
        every_command(open_context(settings), client[str(settings.capture.target)])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
