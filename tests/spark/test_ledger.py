"""What silver remembers of collections in which nothing happened."""

from __future__ import annotations

from pipelines.control.cuts import open_cuts
from pipelines.io.tables import Tables
from pipelines.model.namespaces import Namespace
from pipelines.silver.ledger import Ledger


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
