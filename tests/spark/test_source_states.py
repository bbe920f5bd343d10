"""Requested states of a source, in any order, and from two operators at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from strandline.control.sources import State, set_state, state_of
from strandline.io.tables.spark_tables import Tables
from strandline.model.table_schemas import SOURCES


# scenario: R07; KIP-875: a paused connector can be stopped, a stopped one paused and resumed
def test_every_order_may_follow_every_other_and_the_same_one_is_no_second_row(tables: Tables) -> None:
    orders: list[State] = ["paused", "stopped", "stopped", "paused", "running", "stopped", "running", "running"]
    for state in orders:
        assert set_state(tables, "shop", state, by="ops", why=None).state == state
        assert state_of(tables, "shop").state == state
    kept = tables.read(SOURCES).orderBy("number").collect()
    assert [(row["number"], row["state"]) for row in kept] == list(
        enumerate(["paused", "stopped", "paused", "running", "stopped", "running"], 1)
    )


@pytest.mark.long
def test_operators_at_once_take_numbers_of_their_own(tables: Tables) -> None:
    set_state(tables, "shop", "stopped", by="ops", why=None)
    set_state(tables, "other", "paused", by="ops", why=None)
    for _ in range(2):
        together = threading.Barrier(3)

        def order(state: State, barrier: threading.Barrier = together) -> None:
            barrier.wait()
            set_state(tables, "shop", state, by=state, why=None)

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(order, ("paused", "running", "deleted")))
    numbers = [row["number"] for row in tables.read(SOURCES).where("source = 'shop'").orderBy("number").collect()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) > 3
