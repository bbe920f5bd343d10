"""The progress index: stored progress of idle collections."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from strandline.control.cut_publication import open_cuts
from strandline.control.sources import set_state
from strandline.errors import ContractError
from strandline.io.ddl import schema_of
from strandline.io.tables import Tables
from strandline.jobs.context import JobContext
from strandline.jobs.maintenance.delete_source import delete_source
from strandline.jobs.maintenance.job import run_maintain
from strandline.model.namespaces import Namespace
from strandline.model.table_schemas import BRONZE_DDL, CUTS, bronze_table
from strandline.model.tables import TableName
from strandline.settings.configuration import LakeSettings, Settings
from strandline.silver.history.table import HistoryTable
from strandline.silver.incarnations import Incarnations
from strandline.silver.progress_index import ProgressIndex
from strandline.silver.silver_table import SilverTable
from strandline.silver.typed_table import Progress


def test_two_sources_of_one_lake_keep_their_own(tables: Tables) -> None:
    orders, lines = Namespace("shop", "orders"), Namespace("shop", "lines")
    assert ProgressIndex.read(tables, "one").complete_through == -1
    open_cuts(tables)
    assert ProgressIndex.read(tables, "one").complete_through == -1
    now = datetime(2026, 1, 1, tzinfo=UTC)
    first = (
        ProgressIndex.read(tables, "one")
        .after_run([orders], 5, {"password": orders}, {"silver.orders": 3})
        .store(tables, now)
    )
    ProgressIndex.read(tables, "other").after_run([lines], 9, {}, {}).store(tables, now)
    assert ProgressIndex.read(tables, "one") == first
    assert first.with_events([lines, Namespace("shop", "tmp.agg_out.1")], ["01", "00"]).ended_names == {lines}
    second = first.after_run([lines], 8, {}, {"silver.lines": 1}).with_events([orders], ["02"]).store(tables, now)
    again = ProgressIndex.read(tables, "one")
    assert again == second
    assert ProgressIndex.read(tables, "other").own_versions == {lines: 9}
    assert (
        again.effective_version(orders, 5),
        again.effective_version(lines, 8),
        again.effective_version(orders, 2),
    ) == (8, 8, 2)
    assert again.effective_version(Namespace("shop", "new"), -1) == 8, (
        "a collection that nobody has met has no row up to there"
    )
    assert again.effective_version(Namespace("shop", "new"), 9) == 9


def test_an_index_of_an_older_release_is_read_without_ended_names_and_healed_gaps(tables: Tables) -> None:
    open_cuts(tables)
    older = {
        "own": {"shop.orders": 5},
        "complete_through": 5,
        "moved": {},
        "versions": {"silver.orders": 3},
        "cut": None,
    }
    tables.set_properties(CUTS, {"strandline.ledger.one": json.dumps(older)})
    found = ProgressIndex.read(tables, "one")
    assert (found.own_versions, found.complete_through, found.ended_names, found.healed_through) == (
        {Namespace("shop", "orders"): 5},
        5,
        None,
        None,
    )
    assert (ProgressIndex.empty("one").ended_names, ProgressIndex.empty("one").healed_through) == (frozenset(), "")


def test_an_index_is_stored_for_new_rows_or_once_it_lags_by_many_commits_or_a_day() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    stored = replace(ProgressIndex.empty("one"), complete_through=5, stored_at=now)

    def is_worth_a_commit(through: int, hours: int = 1) -> bool:
        return stored.after_run([], through, {}, {}).is_worth_a_commit(stored, now + timedelta(hours=hours))

    assert [is_worth_a_commit(through) for through in (5, 6, 204, 205)] == [False, False, False, True]
    assert [is_worth_a_commit(through, hours=24) for through in (5, 6)] == [False, True]
    for told in (
        stored.after_run([Namespace("shop", "orders")], 6, {}, {}),
        stored.after_run([], 6, {"uuid": Namespace("shop", "orders")}, {}),
        stored.after_run([], 6, {}, {"silver.orders": 4}),
        stored.after_run([], 6, {}, {}).with_events([Namespace("shop", "orders")], []),
        stored.after_run([], 6, {}, {}).with_events([], ["01"]),
    ):
        assert told.is_worth_a_commit(stored, now)


def test_an_index_of_a_thousand_collections_is_a_small_commit(tables: Tables) -> None:
    names = [Namespace("shop_production", f"customer_orders_{number}") for number in range(1000)]
    versions = {f"silver.customer_orders_{number}": number for number in range(1000)}
    open_cuts(tables)
    before = tables.properties(CUTS)
    ProgressIndex.empty("one").after_run(names, 5, {}, versions).store(tables, datetime.now(UTC))
    (added,) = tables.properties(CUTS).items() - before.items()
    assert len(added[1]) < 20_000, "it was 91 KB"


def test_two_sources_never_share_a_silver_table(tables: Tables) -> None:
    table = SilverTable(tables, TableName("silver", "orders"))
    table.open("shop.orders", "eu")
    table.open("shop.orders", "eu")
    with pytest.raises(ContractError, match=r"silver\.orders is fed by source eu, and this is us: .* → give us a lake"):
        table.open("shop.orders", "us")
    assert table.belongs_to("shop.orders", "eu")
    assert not table.belongs_to("shop.orders", "us")
    assert not SilverTable(tables, TableName("silver", "lines")).belongs_to("shop.lines", "eu")


# scenario: T05
def test_progress_of_a_run_over_some_collections_is_in_their_tables(tables: Tables) -> None:
    source, naming = {"name": "eu", "uri": "mongodb://nowhere"}, {"naming": "collection"}
    settings = Settings(source=source, silver=naming, lake=LakeSettings(root=tables.lake.root))  # type: ignore[arg-type]  # why: pydantic builds the sections
    ctx = JobContext(settings, tables.spark, tables)
    bronze, orders = bronze_table("eu"), SilverTable(tables, TableName("silver", "orders"))
    tables.create(bronze, schema_of(BRONZE_DDL))
    orders.open("shop.orders", "eu")
    SilverTable(tables, TableName("silver", "others")).open("shop.others", "us")
    history = HistoryTable(tables, TableName("silver", "lines_history"))
    history.open("shop.lines", "eu")
    orders.save_progress(Progress(tables.id(bronze), 0), Incarnations())
    tables.set_properties(bronze, {"a.commit": "that silver.orders has not read"})

    log = Path(tables.lake.path(bronze)) / "_delta_log"
    for version in (0, 1):  # Delta takes no commit for older than the one before
        os.utime(log / f"{version:020}.json", (time.time() - 200 * 3600,) * 2)
    (kept,) = [each for each in run_maintain(ctx) if each.table == str(bronze)]
    assert kept.note == "silver.orders has not read it for 200 hours: its files and its log are kept for 264 hours"

    set_state(tables, "eu", "stopped", by="ops", why=None)
    assert delete_source(ctx, by="ops", why=None, dry_run=True) == [history.name, orders.name, bronze]
