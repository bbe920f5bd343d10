"""Delta properties that a user chooses for silver tables: set, changed, refused and unset."""

from __future__ import annotations

import json

import pytest

from strandline.errors import ContractError
from strandline.io.tables.spark_tables import Tables
from strandline.model.tables import TableName
from strandline.silver.configured_properties import CONFIGURED, apply_properties
from strandline.silver.silver_table import SilverTable

ORDERS = TableName("silver", "orders")
INTERVAL, WIDTH, BY_HAND = (
    "delta.checkpointInterval",
    "delta.dataSkippingStringPrefixLength",
    "delta.randomPrefixLength",
)


def test_properties_follow_the_setting_and_those_set_by_hand_stay(tables: Tables) -> None:
    SilverTable(tables, ORDERS).open("shop.orders", "test")
    before = tables.properties(ORDERS)

    def chosen(wanted: dict[str, str]) -> tuple[dict[str, str], int]:
        """Return the properties that the table did not have at first, and the number of commits."""
        version = tables.version(ORDERS)
        apply_properties(tables, ORDERS, wanted)
        found = {name: value for name, value in tables.properties(ORDERS).items() if before.get(name) != value}
        return found, tables.version(ORDERS) - version

    assert chosen({}) == ({}, 0)
    lower = {INTERVAL.lower(): "50"}  # Delta stores the name in its own case
    assert chosen(lower) == ({INTERVAL: "50", CONFIGURED: json.dumps([INTERVAL.lower()])}, 1)
    assert chosen(lower)[1] == 0
    tables.set_properties(ORDERS, {BY_HAND: "4"})
    both = {INTERVAL: "60", WIDTH: "40"}
    all_three = {**both, BY_HAND: "4", CONFIGURED: json.dumps([*both])}
    assert chosen(both) == (all_three, 1)
    for refused, told in ({"delta.nope": "1"}, "UNKNOWN_CONFIGURATION"), ({INTERVAL: "x"}, "UNSUPPORTED_TABLE_CHANGE"):
        with pytest.raises(ContractError, match=rf"does not take.*{next(iter(refused))}.*{told}") as caught:
            chosen({WIDTH: "41", **refused})
        assert "\n" not in str(caught.value)
        assert chosen(both) == (all_three, 0), "nothing was half done"
    assert chosen({WIDTH: "40"}) == ({WIDTH: "40", BY_HAND: "4", CONFIGURED: json.dumps([WIDTH])}, 2)
    tables.set_properties(ORDERS, {INTERVAL: "60", CONFIGURED: json.dumps([WIDTH, INTERVAL])})  # killed before UNSET
    assert chosen({WIDTH: "40"})[0] == {WIDTH: "40", BY_HAND: "4", CONFIGURED: json.dumps([WIDTH])}
    assert chosen({}) == ({BY_HAND: "4"}, 1)
