"""The progress index: stored progress of idle collections."""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest

from strandline.control.cut_publication import open_cuts
from strandline.control.sources import set_state
from strandline.errors import ContractError
from strandline.io.delta_log.commits import Commit, mark_of_rows
from strandline.io.tables.ddl import schema_of
from strandline.io.tables.spark_tables import Tables
from strandline.io.tables.table_store import TableStore
from strandline.jobs.context import JobContext
from strandline.jobs.maintenance.delete_source import delete_source
from strandline.jobs.maintenance.run_maintain import run_maintain
from strandline.model.namespaces import Namespace
from strandline.model.table_schemas import BRONZE_DDL, CUTS, bronze_table
from strandline.model.tables import TableName
from strandline.settings.configuration import LakeSettings, Settings
from strandline.silver.history.table import HistoryTable
from strandline.silver.progress import BronzeLog
from strandline.silver.progress_index import LastCut, ProgressIndex
from strandline.silver.silver_table import SilverTable

ORDERS, LINES = Namespace("shop", "orders"), Namespace("shop", "lines")
_NOW = datetime(2026, 1, 1, tzinfo=UTC)


def bronze_with(tables: Tables, source: str, *batches: int) -> BronzeLog:
    """Create a bronze table with one commit for each of *batches*, from version 1 on."""
    table = bronze_table(source)
    tables.create(table, schema_of(BRONZE_DDL))
    for batch in batches:
        rows = tables.spark.createDataFrame([(batch,)], "batch BIGINT")
        tables.append(table, rows, options={"userMetadata": f"batch {batch}"})
    return BronzeLog.of(tables, table)


def fixed_log(*marks: str) -> BronzeLog:
    """Return the log of a bronze table that has these marks, without a lake."""
    return BronzeLog(cast("TableStore", None), bronze_table("eu"), "eu", dict(enumerate(marks)))


def test_two_sources_of_one_lake_keep_separate_progress(tables: Tables) -> None:
    one, other = bronze_with(tables, "one", 1, 2), bronze_with(tables, "other", 1)
    assert ProgressIndex.read(tables, one.table).through is None
    open_cuts(tables)
    assert ProgressIndex.read(tables, one.table) == ProgressIndex(one)
    empty = ProgressIndex.read(tables, one.table)
    first = empty.after_run([ORDERS], one.at(1), {LINES: {ORDERS: "05"}}, {"silver.orders": 3}).store(tables, _NOW)
    ProgressIndex.read(tables, other.table).after_run([LINES], other.at(1), {}, {}).store(tables, _NOW)
    assert ProgressIndex.read(tables, one.table) == first
    assert first.with_events([LINES, Namespace("shop", "tmp.agg_out.1")], ["01", "00"], {}).ended_names == {LINES}
    second = first.after_run([LINES], one.at(2), {}, {"silver.lines": 1}).with_events(
        [ORDERS], ["02"], {"shop.a": "03"}
    )
    second = second.store(tables, _NOW)
    assert ProgressIndex.read(tables, one.table) == second
    assert ProgressIndex.read(tables, other.table).own == {LINES: other.at(1)}


def test_a_table_is_complete_up_to_the_index_or_its_own_progress_if_bronze_holds_it() -> None:
    log = fixed_log("created", "a", "b", "c")
    index = ProgressIndex(log, own={ORDERS: log.at(1), LINES: log.at(2)}, through=log.at(2))
    replaced = replace(log.at(3), mark="of a lost commit")
    assert {
        "own of the index": index.reached_version(ORDERS, log.at(1)),
        "ahead of the index": index.reached_version(ORDERS, log.at(3)),
        "of a lost commit": index.reached_version(ORDERS, replaced),
        "of another bronze": index.reached_version(ORDERS, replace(log.at(3), bronze_id="us")),
        "behind": index.reached_version(LINES, log.at(1)),
        "no table": index.reached_version(LINES, None),
        "new collection": index.reached_version(Namespace("shop", "new"), None),
    } == {
        "own of the index": 2,
        "ahead of the index": 3,
        "of a lost commit": -1,
        "of another bronze": -1,
        "behind": 1,
        "no table": -1,
        "new collection": 2,
    }


def test_an_index_of_rows_that_bronze_no_longer_holds_starts_over(tables: Tables) -> None:
    log = bronze_with(tables, "one", 1, 2)
    open_cuts(tables)
    cut = LastCut(7, 2, "01:82", "00:~")
    stored = ProgressIndex(log, {ORDERS: log.at(2)}, log.at(2), versions={"silver.orders": 3}, cut=cut)
    stored = replace(stored, ended_names=frozenset({LINES}), healed_through="05").store(tables, _NOW)
    assert ProgressIndex.read(tables, log.table) == stored
    tables.set_properties(log.table, {"some.property": "1"})
    assert ProgressIndex.read(tables, log.table) == stored
    commit = Path(tables.lake.path(log.table)) / "_delta_log" / f"{2:020}.json"
    commit.write_text(commit.read_text().replace('"batch 2"', '"batch 2 of another writer"'))
    found = ProgressIndex.read(tables, log.table)
    assert (found.through, found.known_version(ORDERS), found.cut) == (None, -1, replace(cut, bronze_version=-1))
    assert (found.versions, found.ended_names, found.healed_through) == ({"silver.orders": 3}, frozenset(), "")


@pytest.mark.parametrize("newest", [0, 1, 2, 3])
def test_the_mark_of_rows_is_the_newest_commit_that_appended_some(newest: int) -> None:
    commits = [
        Commit(0, "CREATE TABLE"),
        Commit(1, "WRITE", user_metadata="batch 1"),
        Commit(2, "SET TBLPROPERTIES"),
        Commit(3, "WRITE", user_metadata="batch 2"),
    ]
    marked = (0, 1, 1, 3)[newest]
    assert mark_of_rows(reversed(commits[: newest + 1])) == commits[marked].mark
    assert mark_of_rows([]) is None
    assert mark_of_rows([commits[2]]) == commits[2].mark, "log clean-up has removed the commits before"


def test_both_ways_to_read_a_log_give_the_same_marks(tables: Tables) -> None:
    log = bronze_with(tables, "one", 1, 2)
    tables.set_properties(log.table, {"some.property": 'a "text"'})
    shown = [Commit.of_row(row) for row in tables.spark.sql(f"DESCRIBE HISTORY {tables.lake.sql(log.table)}").collect()]
    assert [commit.mark for commit in shown] == [commit.mark for commit in tables.commits_after(log.table, -1)]
    assert len({commit.mark for commit in shown}) == len(shown) == 4


def test_an_index_is_stored_for_new_rows_or_once_it_lags_by_many_commits_or_a_day() -> None:
    log = fixed_log(*map(str, range(300)))
    stored = replace(ProgressIndex(log, through=log.at(5)), stored_at=_NOW)

    def is_worth_a_commit(through: int, hours: int = 1) -> bool:
        return stored.after_run([], log.at(through), {}, {}).is_worth_a_commit(stored, _NOW + timedelta(hours=hours))

    assert [is_worth_a_commit(through) for through in (5, 6, 204, 205)] == [False, False, False, True]
    assert [is_worth_a_commit(through, hours=24) for through in (5, 6)] == [False, True]
    for changed in (
        stored.after_run([ORDERS], log.at(6), {}, {}),
        stored.after_run([], log.at(6), {"uuid": ORDERS}, {}),
        stored.after_run([], log.at(6), {}, {"silver.orders": 4}),
        stored.after_run([], log.at(6), {}, {}).with_events([ORDERS], [], {}),
        stored.after_run([], log.at(6), {}, {}).with_events([], ["01"], {}),
    ):
        assert changed.is_worth_a_commit(stored, _NOW)


def test_an_index_of_a_thousand_collections_is_a_small_commit(tables: Tables) -> None:
    names = [Namespace("shop_production", f"customer_orders_{number}") for number in range(1000)]
    versions = {f"silver.customer_orders_{number}": number for number in range(1000)}
    open_cuts(tables)
    before = tables.properties(CUTS)
    log = fixed_log(*(hashlib.sha256(str(number).encode()).hexdigest()[:16] for number in range(1000)))
    own = {name: log.at(number) for number, name in enumerate(names)}
    ProgressIndex(log, own, log.at(999), versions=versions).store(tables, _NOW)
    (added,) = tables.properties(CUTS).items() - before.items()
    assert len(added[1]) < 30_000, "it was 91 KB"


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
    orders.set_progress(BronzeLog.of(tables, bronze).at(0), {})
    tables.set_properties(bronze, {"a.commit": "that silver.orders has not read"})

    log = Path(tables.lake.path(bronze)) / "_delta_log"
    for version in (0, 1):  # Delta takes no commit for older than the one before
        os.utime(log / f"{version:020}.json", (time.time() - 200 * 3600,) * 2)
    (kept,) = [each for each in run_maintain(ctx) if each.table == str(bronze)]
    assert kept.note == "silver.orders has not read it for 200 hours: its files and its log are kept for 264 hours"

    set_state(tables, "eu", "stopped", by="ops", why=None)
    assert delete_source(ctx, by="ops", why=None, dry_run=True) == [history.name, orders.name, bronze]
