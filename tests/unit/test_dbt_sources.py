"""``strandline export dbt-sources``: the sources of a dbt project."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from plain_lake import ORDERS, SALES, build_plain_lake

from strandline.cli import app
from strandline.errors import ConfigurationError
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.model.dbt_sources import DescribedTable, dbt_sources
from strandline.model.table_schemas import BOOKKEEPING
from strandline.model.tables import Lake


def test_the_sources_name_every_column_with_its_type_and_comment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "it's a lake"
    lake = build_plain_lake(root)
    (tmp_path / "base.yml").write_text(yaml.safe_dump({"lake": {"root": str(root)}}), encoding="utf-8")
    app(["--conf", str(tmp_path), "export", "dbt-sources"], standalone_mode=False)
    found = yaml.safe_load(capsys.readouterr().out)
    assert [source["name"] for source in found["sources"]] == ["silver", "gold"]
    ((orders,), (sales,)) = (source["tables"] for source in found["sources"])
    columns = {column["name"]: column for column in orders["columns"]}
    assert list(columns) == [*BOOKKEEPING, "_id", "total", "customer", "Größe"]
    assert {name: column["data_type"] for name, column in columns.items()} == DeltaRsTables(lake).column_types(ORDERS)
    assert columns["_deleted"]["description"] == "true: tombstone of a deleted document"
    assert (columns["customer"]["data_type"], columns["Größe"]["quote"]) == ("struct<city:string>", True)
    assert orders["description"] == "silver.orders, with tombstones: live documents are NOT _deleted."
    escaped = lake.path(SALES).replace("'", "''")
    assert sales["config"] == {"meta": {"external_location": f"delta_scan('{escaped}')"}}


def test_a_catalog_is_named_and_a_plugin_gets_the_path() -> None:
    described = [DescribedTable(ORDERS, "orders", {"_id": "bigint"}, {})]
    (source,) = dbt_sources(Lake(catalog="main", schema="shop"), described, "delta_scan")["sources"]
    assert (source["database"], source["schema"], "config" in source["tables"][0]) == ("main", "shop_silver", False)
    (source,) = dbt_sources(Lake(root="s3a://b/l"), described, "plugin")["sources"]
    meta = {"plugin": "delta", "delta_table_path": "s3://b/l/silver/orders"}
    assert source["tables"][0]["config"] == {"meta": meta}
    with pytest.raises(ConfigurationError, match=r"takes the braces in /\{x\}/silver/orders .*--reader plugin"):
        dbt_sources(Lake(root="/{x}"), described, "delta_scan")
