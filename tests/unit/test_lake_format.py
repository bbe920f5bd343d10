"""Lake format: a table of a preview or of a newer release is refused with one line."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from strandline.errors import ConfigurationError
from strandline.model.lake_format import FORMAT, FORMAT_PROPERTY, is_ours, refuse_other_format, require_ours, stamp
from strandline.model.tables import TableName

BRONZE, CUTS = TableName("bronze", "shop"), TableName("control", "cuts")
ORDERS, SALES = TableName("silver", "orders"), TableName("gold", "sales")
OLD: Mapping[str, str] = {FORMAT_PROPERTY: str(FORMAT - 1)}


@pytest.mark.parametrize(
    ("table", "properties"),
    [
        (BRONZE, stamp(BRONZE)),
        (SALES, {"delta.appendOnly": "true"}),
        (ORDERS, {}),
        (ORDERS, stamp(BRONZE)),
        (CUTS, stamp(ORDERS)),
    ],
)
def test_a_table_of_this_format_or_of_another_program_passes(table: TableName, properties: Mapping[str, str]) -> None:
    refuse_other_format(table, properties)


def test_a_newer_format_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigurationError) as refused:
        refuse_other_format(BRONZE, {FORMAT_PROPERTY: str(FORMAT + 1)})
    assert str(refused.value).startswith(
        f"bronze.shop has format {FORMAT + 1}, and this release knows format {FORMAT};"
    )


@pytest.mark.parametrize(
    ("table", "properties", "command"),
    [
        (BRONZE, OLD, "strandline capture with another lake.root"),
        (BRONZE, {"strandline.source": "shop"}, "strandline capture with another lake.root"),
        (CUTS, {}, "strandline capture with another lake.root"),
        (ORDERS, OLD, "strandline silver: it makes the table anew from bronze"),
        (SALES, OLD, "strandline gold: it builds the table anew"),
    ],
)
def test_a_table_of_a_preview_is_refused_with_the_command_that_makes_it_anew(
    table: TableName, properties: Mapping[str, str], command: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        refuse_other_format(table, properties)
    assert str(refused.value).startswith(f"{table} was written by a preview (format ")
    assert command in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("properties", "ours"), [({}, False), (stamp(ORDERS), False), (stamp(CUTS), True)])
def test_a_clone_has_the_properties_of_the_table_that_it_was_made_of(properties: Mapping[str, str], ours: bool) -> None:
    assert is_ours(CUTS, properties) is ours


def test_a_clone_under_a_name_of_ours_is_refused() -> None:
    require_ours(ORDERS, stamp(ORDERS))
    with pytest.raises(ConfigurationError) as refused:
        require_ours(ORDERS, stamp(TableName("silver", "customers")))
    assert str(refused.value) == (
        "silver.orders is a table that Strandline has not made; nothing was written"
        " → rename or drop silver.orders, then repeat the command"
    )
