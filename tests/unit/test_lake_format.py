"""Lake format: the pure functions."""

from __future__ import annotations

import pytest

from strandline.errors import ConfigurationError
from strandline.model.lake_format import (
    FORMAT,
    FORMAT_PROPERTY,
    MIGRATIONS,
    STAMP,
    column_names,
    current_names,
    is_ours,
    pending,
    refuse_newer,
    renames,
)
from strandline.model.tables import TableName

BRONZE, CUTS, ORDERS = TableName("bronze", "shop"), TableName("control", "cuts"), TableName("silver", "orders")


def test_every_format_has_the_migration_that_leads_to_it() -> None:
    assert [migration.format for migration in MIGRATIONS] == list(range(1, FORMAT + 1))


def test_an_old_property_name_is_read_under_the_new_one() -> None:
    older = {
        "strandline.floor": "5",
        "strandline.ledger.one": "a",
        "strandline.ledger.two": "b",
        "delta.appendOnly": "true",
    }
    today = {
        "strandline.purge_watermark": "5",
        "strandline.progress_index.one": "a",
        "strandline.progress_index.two": "b",
    }
    assert current_names(older) == today | {"delta.appendOnly": "true"}
    assert current_names(older | {"strandline.purge_watermark": "7"})["strandline.purge_watermark"] == "7"
    assert current_names(current_names(older)) == current_names(older)


def test_no_new_name_is_an_old_one() -> None:
    old = {name for migration in MIGRATIONS for name in migration.properties}
    assert not old & {name for migration in MIGRATIONS for name in migration.properties.values()}


def test_columns_that_were_renamed() -> None:
    assert column_names(BRONZE, "ends_outside_transaction") == ("ends_outside_transaction", "whole")
    assert column_names(CUTS, "inexact_reasons") == ("inexact_reasons", "because")
    assert column_names(BRONZE, "op") == ("op",)
    assert [list(renames(table)) != [] for table in (BRONZE, CUTS, ORDERS)] == [True, True, False]


def test_missing_properties_by_table() -> None:
    assert pending({}) == MIGRATIONS
    assert pending(STAMP) == ()


def test_a_newer_format_is_refused_in_one_line() -> None:
    refuse_newer(BRONZE, {})
    refuse_newer(BRONZE, STAMP)
    with pytest.raises(
        ConfigurationError,
        match=rf"bronze\.shop has format {FORMAT + 1}, and this release knows formats up to {FORMAT}",
    ):
        refuse_newer(BRONZE, {FORMAT_PROPERTY: str(FORMAT + 1)})


def test_tables_of_others_are_left_alone() -> None:
    assert is_ours(CUTS, {})
    assert is_ours(ORDERS, {"strandline.namespace": "shop.orders"})
    assert is_ours(TableName("silver", "orders_dropped_12345678"), {})
    assert not is_ours(TableName("gold", "somebody_elses"), {"delta.appendOnly": "true"})
