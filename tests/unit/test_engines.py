"""Names of engines in results, commands and pages."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from strandline.io.delta_log.log_commit import commit_info, put_commit
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.jobs.operations.engines import engine_of_rows, engines_of_rows
from strandline.model.engines import engine_in, engines_of_layer, engines_text
from strandline.model.tables import Lake, TableName

_ORDERS = TableName("silver", "orders")


@pytest.mark.parametrize(
    ("engine_info", "engine"),
    [
        ("Apache-Spark/4.2.0 Delta-Lake/4.4.0", "Spark"),
        ("Databricks-Runtime/16.4.x-scala2.12", "Spark"),
        ("delta-rs:py-1.6.6", "delta-rs"),
        ("strandline/0.1.0", "delta-rs"),
        ("Trino/450", "Trino"),
        ("", None),
        (None, None),
    ],
)
def test_the_engine_of_a_commit(engine_info: str | None, engine: str | None) -> None:
    assert engine_in(engine_info) == engine


def test_engines_are_counted_by_layer() -> None:
    assert engines_text([]) == engines_of_layer([None]) == ""
    one = [("bronze", "delta-rs"), ("gold", "Spark"), ("gold", None), ("silver", "delta-rs"), ("silver", "Spark")]
    assert engines_text([*one, *[("silver", "Spark")] * 2]) == (  # type: ignore[list-item]  # why: the layers are Literals
        "bronze: delta-rs; silver: Spark 3 tables, delta-rs 1; gold: Spark 1 table"
    )


def test_the_engine_of_the_newest_rows_is_in_the_log(tmp_path: Path) -> None:
    tables = DeltaRsTables(Lake(root=str(tmp_path)))
    tables.create_table(_ORDERS, "id BIGINT")
    assert (engine_of_rows(tables, _ORDERS), engines_of_rows(tables)) == (None, {})
    tables.append_rows(_ORDERS, pa.table({"id": [1]}))
    tables.set_properties(_ORDERS, {"strandline.note": "no row is changed"})
    assert engines_of_rows(tables) == {_ORDERS: "delta-rs"}
    folder, version = tables.folder(_ORDERS), tables.version(_ORDERS)
    by_spark = commit_info("MERGE", {})
    by_spark["commitInfo"]["engineInfo"] = "Apache-Spark/4.2.0 Delta-Lake/4.4.0"
    put_commit(folder, version + 1, [by_spark])
    put_commit(folder, version + 2, [commit_info("OPTIMIZE", {})])
    assert engines_of_rows(tables) == {_ORDERS: "Spark"}
