"""The commands of README and the guides, run as they are written, page by page, on a lake that fits them."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from documents import PAGES, ROOT, Page
from lakehouse import without_utf8
from pymongo import MongoClient
from pyspark.sql import SparkSession
from spark_refused import lake_without_spark

from strandline.cli import app
from strandline.demo.files import GOLD
from strandline.jobs.reconcile.continuous import ContinuousProof
from strandline.settings.configuration import load_settings
from strandline.source.mongod import EmbeddedMongod

CONFIGURATION = """
capture: {scope: database, target: shop, heartbeat_interval_ms: 100, signal_poll_interval_ms: 1}
silver: {history: scd2}
lake: {root: lake}
"""
SUITE = "{table: silver.orders, expectations: [{type: expect_column_values_to_not_be_null, column: _key}]}"
_GUIDES = (
    "README.md",
    "docs/coming-from.md",
    "docs/doctor.md",
    "docs/columns.md",
    "docs/debezium.md",
    "docs/capture.md",
    "docs/history.md",
    "docs/retention.md",
    "docs/upgrades.md",
)
_RUNBOOK = "docs/runbook.md"
_START = "docs/start.md"
"""`test_start` follows it."""
_DATABRICKS = "docs/databricks.md"
"""Its commands need a workspace. `unit/test_docs.py` parses them."""
_UI = "docs/ui.md"
"""Its command runs until it is ended. `unit/test_ui_command.py` starts it, and `test_ui.py` calls its API."""
_RESTORE = "docs/restore.md"
"""Its commands need a second deployment and a moment of the own oplog. `test_restore.py` restores to both targets."""
_ERASE = "docs/erase.md"
"""Its commands need a person to forget. `test_erase.py` erases one, and searches every file."""
_TIME = "2026-01-31T12:00:00+00:00"


@pytest.fixture
def shop() -> Iterator[tuple[str, MongoClient[Any]]]:
    """A server of its own: the pages' database is called `shop`."""
    with EmbeddedMongod() as server, MongoClient[Any](server.uri) as client:
        client.shop.orders.insert_many(
            [
                {"_id": number, "total": number * 1.5, "state": "open", "size": number if number % 2 else "XL"}
                for number in range(9)
            ]
        )
        client.shop.payments.insert_many([{"_id": number, "order_id": number} for number in range(5)])
        yield server.uri, client


def typed(arguments: list[str], moment: str) -> None:
    """As somebody types it who has put a time of the own oplog in place of the page's."""
    said = [moment if argument == _TIME else argument for argument in arguments]
    assert app(said, standalone_mode=False) in (None, 0), said


# why long: forty commands
@pytest.mark.long
@pytest.mark.usefixtures("signals_restored")
def test_every_command_of_the_guides_is_executed(
    spark: SparkSession, shop: tuple[str, MongoClient[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, client = shop
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf" / "quality").mkdir(parents=True)
    gold = f"gold: {{sql_dir: {GOLD}, tests_dir: cases}}"
    (tmp_path / "conf" / "base.yml").write_text(CONFIGURATION + gold, encoding="utf-8")
    (tmp_path / "conf" / "quality" / "orders.yml").write_text(SUITE, encoding="utf-8")
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "fleet_age.yml").write_text(
        Page(ROOT / "docs" / "gold.md").blocks("yaml")[0], encoding="utf-8"
    )
    monkeypatch.setenv("STRANDLINE_SOURCE__URI", uri)
    client.shop.orders.insert_one(without_utf8({"_id": 9, "state": "XXXX"}))  # a dead letter, for the runbook's query
    moment = datetime.now(UTC).isoformat()
    typed(["run", "--once"], moment)
    typed(["gold", "test"], moment)
    for page in (Page(ROOT / name) for name in _GUIDES):
        for command in page.commands():
            typed(command, moment)
        for query in page.blocks("sql"):
            spark.sql(on_the_lake(query, tmp_path / "lake")).collect()
    client.shop.orders.update_one({"_id": 1}, {"$set": {"total": 9.0}})
    typed(["run", "--once"], moment)

    runbook = Page(ROOT / _RUNBOOK).commands()
    asks_the_source = runbook.index(["reconcile"])
    for command in runbook[:asks_the_source]:
        typed(command, moment)
    typed(["run", "--once"], moment)  # as the page says before it
    proof = ContinuousProof(lake_without_spark(load_settings()), 1_000, repairs=False)
    proof.step(threading.Event())  # as `run` does with a budget
    for command in runbook[asks_the_source:]:
        typed(command, moment)


def on_the_lake(query: str, lake: Path) -> str:
    """A query whose tables are named by layer, or by a path and some version, as Spark itself takes it."""
    by_path = re.sub(
        r"\b(control|silver|bronze)\.(\w+)", rf"delta.`{lake}/\1/\2`", query.replace("`lake/", f"`{lake}/")
    )
    return re.sub(r"version as of \d+", "version as of 1", by_path)


@pytest.mark.parametrize("page", [page for page in PAGES if page.commands()], ids=lambda page: page.name)
def test_no_page_with_commands_is_left_out(page: Page) -> None:
    assert page.name in (*_GUIDES, _RUNBOOK, _START, _DATABRICKS, _UI, _RESTORE, _ERASE)
