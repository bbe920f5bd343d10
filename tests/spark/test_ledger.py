"""What silver remembers of collections in which nothing happened."""

from __future__ import annotations

import pytest

from pipelines.control.cuts import open_cuts
from pipelines.control.sources import set_state
from pipelines.errors import ContractError
from pipelines.io.tables import Tables, schema_of
from pipelines.jobs.context import JobContext
from pipelines.jobs.deletion import delete_source
from pipelines.jobs.maintain import run_maintain
from pipelines.model.columns import BRONZE_DDL, bronze_table
from pipelines.model.namespaces import Namespace
from pipelines.model.tables import TableName
from pipelines.settings import LakeSettings, Settings
from pipelines.silver.history_table import HistoryTable
from pipelines.silver.incarnations import Incarnations
from pipelines.silver.ledger import Ledger
from pipelines.silver.typed_table import Progress
from pipelines.silver.writer import SilverTable


def test_two_sources_of_one_lake_keep_their_own(tables: Tables) -> None:
    orders, lines = Namespace("shop", "orders"), Namespace("shop", "lines")
    assert Ledger.read(tables, "one").complete_through == -1
    open_cuts(tables)
    assert Ledger.read(tables, "one").complete_through == -1
    first = Ledger.read(tables, "one").advanced([orders], 5, {"password": orders}, {"silver.orders": 3})
    first.store(tables)
    Ledger.read(tables, "other").advanced([lines], 9, {}, {}).store(tables)
    assert Ledger.read(tables, "one") == first
    second = Ledger.read(tables, "one").advanced([lines], 8, {}, {"silver.lines": 1})
    second.store(tables)
    again = Ledger.read(tables, "one")
    assert again == second
    assert Ledger.read(tables, "other").own == {lines: 9}
    assert (again.effective(orders, 5), again.effective(lines, 8), again.effective(orders, 2)) == (8, 8, 2)
    assert again.effective(Namespace("shop", "new"), -1) == 8, "a collection that nobody has met has no row up to there"
    assert again.effective(Namespace("shop", "new"), 9) == 9


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
def test_what_runs_over_some_collections_have_merged_is_known_by_its_tables(tables: Tables) -> None:
    settings = Settings(source={"name": "eu", "uri": "mongodb://nowhere"}, lake=LakeSettings(root=tables.lake.root))  # type: ignore[arg-type]  # why: pydantic builds the section
    ctx = JobContext(settings, tables.spark, tables)
    bronze, orders = bronze_table("eu"), SilverTable(tables, TableName("silver", "orders"))
    tables.create(bronze, schema_of(BRONZE_DDL))
    orders.open("shop.orders", "eu")
    SilverTable(tables, TableName("silver", "others")).open("shop.others", "us")
    history = HistoryTable(tables, TableName("silver", "lines_history"))
    history.open("shop.lines", "eu")
    orders.advance(Progress(tables.id(bronze), 0), Incarnations())
    tables.set_properties(bronze, {"a.commit": "that silver.orders has not read"})

    at_once = settings.maintenance.model_copy(update={"retention_hours": 0})
    done = run_maintain(JobContext(settings.model_copy(update={"maintenance": at_once}), tables.spark, tables))
    (kept,) = [each for each in done if each.table == str(bronze)]
    assert (kept.vacuumed, kept.note) == (False, "silver.orders has not read it for more than 0 hours: no file is removed")

    set_state(tables, "eu", "stopped", by="ops", why=None)
    assert delete_source(ctx, by="ops", why=None, dry_run=True) == [history.name, orders.name, bronze]
