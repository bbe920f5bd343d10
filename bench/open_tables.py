"""Portable against native silver tables, and a silver table before and after ``silver.layout``."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, get_args

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bench.by_hand import merge_by_hand
from bench.orders import ORDERS, Orders, chosen, document
from bench.silver import Cost, copied, cost, typical
from strandline.io.tables.spark_tables import Tables
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.shape import Compatibility

_FILE_SIZE: Final = "spark.databricks.delta.optimize.maxFileSize"
_FILES: Final = 16
_LAYOUT: Final = {"shop.orders": {"cluster_by": ["customer"], "statistics": ["placed"]}}


@dataclass(frozen=True)
class KindCost:
    """Costs of one kind of table: a silver run, the hand-written MERGE of the same rows, and a read of all rows."""

    compatibility: Compatibility
    rows: int
    changed: int
    silver: Cost
    by_hand: Cost
    read_seconds: float
    megabytes: float


@dataclass(frozen=True)
class LayoutCost:
    """Costs of one layout of the same rows: query by date range, look-up by customer, silver run."""

    layout: str
    files: int
    date_range: Cost
    look_up: Cost
    silver: Cost


def compare_kinds(spark: SparkSession, folder: Path, *, rows: int, rounds: int) -> Iterator[KindCost]:
    """Change a fortieth of *rows* scattered orders, in portable and native tables of *rows* and of a quarter of them.

    A first, smaller change of each table is not counted. Of *rounds* changes the median counts.

    Raises:
        RuntimeError: A method did not update exactly the changed orders.
    """
    for size in (rows // 4, rows):
        for kind in get_args(Compatibility):
            orders = Orders.built(spark, folder / kind, size, compatibility=kind)
            by_hand = copied(orders, folder / f"{kind}-by-hand")
            _merge_costs(orders, by_hand, 1_000, turn=1)
            costs = [_merge_costs(orders, by_hand, rows // 40, turn=2 + turn) for turn in range(rounds)]
            silver, own = (typical(side) for side in zip(*costs, strict=True))
            yield KindCost(kind, size, rows // 40, silver, own, _read_seconds(orders, rounds), _megabytes(orders))
            for name in (kind, f"{kind}-by-hand"):
                shutil.rmtree(folder / name)


def _merge_costs(orders: Orders, by_hand: Tables, changed: int, *, turn: int) -> tuple[Cost, Cost]:
    """Change orders. Return the costs of a silver run and of the hand-written MERGE."""
    orders.change(chosen(orders.rows, changed, "scattered", turn))
    updated: list[int] = []
    silver = cost(orders.ctx.tables, lambda: updated.append(run_silver(orders.ctx)[0].updated))
    own = cost(by_hand, lambda: updated.append(merge_by_hand(by_hand, orders.newest_batch())))
    if updated != [changed, changed]:
        raise RuntimeError(f"{updated} of {orders.rows} orders were updated, not {changed}")
    return silver, own


def _read_seconds(orders: Orders, rounds: int) -> float:
    """Return the median time of a count of the values in every column."""
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        table = orders.ctx.tables.read(ORDERS)
        table.agg(*(F.count(name) for name in table.columns)).collect()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def _megabytes(orders: Orders) -> float:
    return int(orders.ctx.tables.detail(ORDERS)["sizeInBytes"]) / 1e6


def compare_layouts(spark: SparkSession, folder: Path, *, rows: int) -> Iterator[LayoutCost]:
    """Query a table of sixteen files without and with a layout: statistics of `placed`, clustered by `customer`."""
    orders = Orders.built(spark, folder / "layout", rows)
    size = int(orders.ctx.tables.detail(ORDERS)["sizeInBytes"])
    spark.conf.set(_FILE_SIZE, str(size // _FILES))
    try:
        for name, layout in (("none", {}), ("customer, placed", _LAYOUT)):
            silver = orders.ctx.settings.silver.model_validate({"layout": layout})
            orders.ctx = replace(orders.ctx, settings=orders.ctx.settings.model_copy(update={"silver": silver}))
            orders.change([1])
            run_silver(orders.ctx)
            spark.sql(f"OPTIMIZE {orders.ctx.tables.lake.sql(ORDERS)} FULL")
            yield _layout_cost(name, orders)
    finally:
        spark.conf.unset(_FILE_SIZE)
        shutil.rmtree(folder / "layout")


def _layout_cost(name: str, orders: Orders) -> LayoutCost:
    tables, rows = orders.ctx.tables, orders.rows
    since: datetime = document(rows // 2)["placed"].astimezone(UTC)
    until = since + timedelta(seconds=rows // 100)
    files = int(tables.detail(ORDERS)["numFiles"])
    queries = (
        f"placed >= TIMESTAMP '{since.isoformat()}' AND placed < TIMESTAMP '{until.isoformat()}'",
        "customer = 'customer 000042'",
    )
    date_range, look_up = (_query_cost(orders, query) for query in queries)
    orders.change(chosen(rows, rows // 100, "scattered", orders.batch))
    silver = cost(tables, lambda: run_silver(orders.ctx))
    return LayoutCost(name, files, date_range, look_up, silver)


def _query_cost(orders: Orders, condition: str) -> Cost:
    """Return the cost of the second run: the first one compiles the query."""
    tables = orders.ctx.tables

    def ask() -> object:
        return tables.read(ORDERS).where(condition).agg({"amount": "sum"}).collect()

    ask()
    return cost(tables, ask)
