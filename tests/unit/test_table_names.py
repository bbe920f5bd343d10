"""Hostile names of the source become plain table names, and never leave the lake."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strandline.model.tables import Lake, TableName, literal, quoted, safe_name

_names = st.text(min_size=1, max_size=130) | st.from_regex(r"[a-zA-Z0-9_]{1,12}", fullmatch=True)
_paths = st.lists(_names, min_size=1, max_size=3)


@given(_paths, _paths)
@example(["A"], ["a"])
@example(["a", "b"], ["a__b"])
@example(["a_", "b"], ["a", "_b"])
@example(["a/b"], ["a_b"])
@example(["é"], ["e\u0301"])
@example(["x" * 120], ["x" * 121])
@example(["A\0b"], ["A", "b"])
def test_two_names_never_share_a_table(one: list[str], other: list[str]) -> None:
    assert (safe_name(*one) == safe_name(*other)) == (one == other)


@given(st.text(alphabet="Aa", min_size=1, max_size=6))
def test_a_plain_name_never_looks_like_a_replaced_one(name: str) -> None:
    replaced = safe_name(name.upper())
    assert safe_name(replaced) != replaced


@given(_paths)
@example([".."])
@example(["../../etc/passwd"])
@example(["", ""])
@example(["\ud800"])
def test_a_table_name_is_plain_and_stays_in_the_lake(parts: list[str]) -> None:
    name = safe_name(*parts)
    assert re.fullmatch(r"[a-z0-9_]+", name)
    assert len(name) <= 100
    folder = Path("/lake/silver")
    assert Path(Lake(root="/lake").path(TableName("silver", name))).resolve().parent == folder


@pytest.mark.parametrize(
    ("parts", "name"),
    [(("orders",), "orders"), (("shop", "orders"), "shop__orders"), (("order_items2",), "order_items2")],
)
def test_a_plain_name_stays_as_it_is(parts: tuple[str, ...], name: str) -> None:
    assert safe_name(*parts) == name


def test_a_prefix_and_a_delimiter_are_part_of_every_name() -> None:
    assert safe_name("shop", "orders", prefix="raw_", delimiter="_") == "raw_shop_orders"
    assert safe_name("A", prefix="raw_").startswith("raw_a_")
    assert safe_name("shop", "Orders", prefix="raw_") != safe_name("shop", "orders", prefix="raw_")


@given(st.text(max_size=20))
def test_a_quoted_name_cannot_end_its_quotes(identifier: str) -> None:
    inside = quoted(identifier)[1:-1]
    assert inside.replace("``", "").count("`") == 0
    assert inside.replace("``", "`") == identifier


def test_location_of_each_table() -> None:
    table = TableName("silver", "orders")
    assert Lake(root="/lake").sql(table) == "delta.`/lake/silver/orders`"
    assert Lake(root="s3://bucket/lake/").path(table) == "s3://bucket/lake/silver/orders"
    assert Lake(catalog="main", schema="sea").sql(table) == "`main`.`sea_silver`.`orders`"
    assert Path(Lake(root="lake").path(table)).is_absolute()


@pytest.mark.parametrize("root", ["s3a://b/l", "hdfs://name/l", "file:///l", "file:/l", "dbfs:/l", "abfss://c@a/l"])
def test_a_root_with_a_scheme_is_a_uri(root: str) -> None:
    lake = Lake(root=root)
    assert lake.in_object_store
    assert lake.path(TableName("gold", "t")) == f"{root}/gold/t"


@pytest.mark.parametrize("root", ["/data/a:b", "a:b", "lake:2026", "/data/s3://x", "C:/lake"])
def test_a_folder_with_a_colon_in_its_name_is_a_folder(root: str) -> None:
    lake = Lake(root=root)
    assert not lake.in_object_store
    assert Path(lake.path(TableName("gold", "t"))).is_absolute()


def test_no_variable_is_put_in_the_place_of_what_a_value_holds() -> None:
    assert literal("${env:HOME} costs $5 {a}") == "'\\u0024{env:HOME} costs $5 {a}'"
