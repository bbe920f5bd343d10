"""Portable against native silver tables, and a silver table before and after ``silver.layout``."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, get_args

from pyspark.sql import SparkSession

from bench.by_hand import merge_by_hand
from bench.orders import ORDERS, Orders, chosen, document
from bench.silver import Cost, copied, cost
from pipelines.jobs.silver.job import run_silver
from pipelines.model.shape import Compatibility

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


def compare_kinds(spark: SparkSession, folder: Path, *, rows: int) -> Iterator[KindCost]:
    """Change a tenth of *rows* scattered orders of a portable and of a native table. The first change is not counted.

    Raises:
        RuntimeError: A method did not update exactly the changed orders.
    """
    changed = rows // 10
    for kind in get_args(Compatibility):
        orders = Orders.built(spark, folder / kind, rows, compatibility=kind)
        by_hand = copied(orders, folder / f"{kind}-by-hand")
        for turn, count in ((1, 1_000), (2, changed)):
            orders.change(chosen(rows, count, "scattered", turn))
            updated: list[int] = []
            silver = cost(orders.ctx.tables, lambda: updated.append(run_silver(orders.ctx)[0].updated))  # noqa: B023  # why: called at once
            own = cost(by_hand, lambda: updated.append(merge_by_hand(by_hand, orders.newest_batch())))  # noqa: B023  # why: as above
            if updated != [count, count]:
                raise RuntimeError(f"{kind}: {updated} orders were updated, not {count}")
        started = time.perf_counter()
        orders.ctx.tables.read(ORDERS).write.format("noop").mode("overwrite").save()
        seconds = time.perf_counter() - started
        size = int(orders.ctx.tables.detail(ORDERS)["sizeInBytes"]) / 1e6
        yield KindCost(kind, rows, changed, silver, own, seconds, size)
        for name in (kind, f"{kind}-by-hand"):
            shutil.rmtree(folder / name)


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
