"""Tables read without Spark: the same columns and rows with each library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from strandline import read
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.jobs.lake_context import DeltaRsContext
from strandline.jobs.silver.named_tables import table_named
from strandline.model.table_schemas import BOOKKEEPING, HIDDEN
from strandline.model.tables import Lake, TableName, safe_name
from strandline.settings.configuration import Settings

_PATTERNS = ["*", "^x.*$", "xy", "a.b", "a", 'quo"te', "it's", "^", "$1", "%", "COLUMNS(*)", "d[0]", "s", "Deleted"]


def rows_of(found: Any) -> list[dict[str, Any]]:
    if hasattr(found, "collect"):  # polars
        return found.collect().to_dicts()  # type: ignore[no-any-return]  # why: read returns the library's own type
    table = found if isinstance(found, pa.Table) else found.to_arrow_table()
    return table.to_pylist()  # type: ignore[no-any-return]  # why: pyarrow has no types


@pytest.mark.parametrize("using", ["arrow", "polars", "duckdb"])
@pytest.mark.parametrize("everything", [False, True])
def test_columns_named_as_patterns_are_read_as_any_other(tmp_path: Path, using: Any, everything: bool) -> None:
    values: dict[str, Any] = {name: [f"{name} {row}" for row in range(2)] for name in _PATTERNS}
    values["s"] = [{"*": 1, "^x.*$": 2}] * 2
    table = pa.table({name: pa.nulls(2, pa.string()) for name in BOOKKEEPING} | values)
    deleted = pa.array([False, True])
    table = table.set_column(table.schema.get_field_index("_deleted"), "_deleted", deleted)
    write_deltalake(str(tmp_path / "silver" / "orders"), table)
    expected = table.to_pylist() if everything else table.slice(0, 1).drop_columns(list(HIDDEN)).to_pylist()
    assert rows_of(read("orders", root=tmp_path, using=using, everything=everything)) == expected


@pytest.mark.parametrize(
    ("collection", "table"),
    [
        ("orderLines", "orderlines_6edea317"),
        ("silver.orderLines", "orderlines_6edea317"),
        ("order-lines.v2", safe_name("order-lines.v2")),
        ("shop.orderLines", safe_name("shop", "orderLines")),
        ("2020", "2020"),
    ],
)
def test_a_table_is_read_by_its_collections_name(tmp_path: Path, collection: str, table: str) -> None:
    write_deltalake(str(tmp_path / "silver" / table), pa.table({"a": [1]}))
    assert rows_of(read(collection, root=tmp_path)) == [{"a": 1}]
    lake = DeltaRsContext(Settings(), DeltaRsTables(Lake(root=str(tmp_path))))
    assert table_named(lake, collection) == TableName("silver", table)
    assert table_named(lake, "nothing") == TableName("silver", "nothing")
