"""What silver remembers of collections in which nothing happened."""

from __future__ import annotations

import pytest

from pipelines.control.cuts import open_cuts
from pipelines.errors import ContractError
from pipelines.io.tables import Tables
from pipelines.model.namespaces import Namespace
from pipelines.model.tables import TableName
from pipelines.silver.ledger import Ledger
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
