"""A small lake by path that needs neither Spark nor MongoDB: one portable silver table and one gold table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.model.table_schemas import SILVER_BOOKKEEPING_DDL
from strandline.model.tables import Lake, TableName
from strandline.silver.compatibility import bookkeeping_ddl

ORDERS, SALES = TableName("silver", "orders"), TableName("gold", "sales")


def build_plain_lake(root: Path) -> Lake:
    """Write two orders, of which one is deleted, and one day of sales."""
    lake = Lake(root=str(root))
    tables = DeltaRsTables(lake)
    tables.create_table(ORDERS, bookkeeping_ddl(SILVER_BOOKKEEPING_DDL, "portable"))
    rows = [
        {"_key": "1", "_deleted": False, "_id": 1, "total": 2.5, "customer": {"city": "Köln"}, "Größe": "XL"},
        {"_key": "2", "_deleted": True, "_id": 2, "total": 4.5, "customer": None, "Größe": None},
    ]
    write_deltalake(lake.path(ORDERS), pa.Table.from_pylist(rows), mode="append", schema_mode="merge")
    tables.create_table(SALES, "day STRING, orders BIGINT")
    write_deltalake(lake.path(SALES), pa.table({"day": ["2026-11-25"], "orders": [1]}), mode="append")
    return lake
