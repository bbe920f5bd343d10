"""Cost of a silver run by number of changes and by table size.

Compared with a hand-written pipeline, a plain MERGE of the same rows, and a rewrite of the table.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.by_hand import merge_by_hand
from bench.orders import ORDERS, WHERE, Orders, Where, chosen
from bench.reads import ReadWatch
from strandline.io.tables.spark_tables import Tables
from strandline.jobs.silver.run_silver import run_silver
from strandline.model.merge_rule import MergeRule
from strandline.model.tables import Lake

_GUARD = "s._position > t._position"


@dataclass(frozen=True)
class Case:
    """Benchmark case: *changed* of *rows* documents change."""

    rows: int
    changed: int
    where: Where


@dataclass(frozen=True)
class Cost:
    """Cost of several rounds.

    Median seconds; from the last round, files opened, and bytes read and written by the JVM.
    """

    seconds: float
    files: int
    read: int
    written: int


@dataclass(frozen=True)
class Compared:
    """Costs of one case: silver run, hand-written pipeline, plain MERGE, and table rewrite.

    The rewrite is measured once per table; None in all other cases.
    """

    case: Case
    silver: Cost
    by_hand: Cost
    merge: Cost
    rewrite: Cost | None


def cases(rows: int) -> list[Case]:
    """Return the cases: growing changes to one table, and one change to growing tables up to *rows*.

    Four million *rows* give tables of 10,000, 100,000, one million and four million rows, with changes of 1, 1,000 and
    100,000 rows.
    """
    tables = [size for size in (rows // 400, rows // 40, rows // 4, rows) if size >= 1_000]
    middle = tables[-2] if len(tables) > 1 else rows
    by_change = {(middle, changed) for changed in (1, 1_000, middle // 10)}
    by_table = {(size, 1_000) for size in tables} | {(size, middle // 10) for size in tables[-2:]}
    return [Case(*both, where) for both in sorted(by_change | by_table) for where in WHERE]


def compare(spark: SparkSession, folder: Path, *, rows: int, rounds: int) -> Iterator[Compared]:
    """Build tables of up to *rows*, change them and yield the costs of each case."""
    wanted = cases(rows)
    for size in sorted({case.rows for case in wanted}):
        bench = _Bench(Orders.built(spark, folder / f"silver-{size}", size), folder)
        bench.run(Case(size, 1_000, "scattered"), rounds=1)
        own = [case for case in wanted if case.rows == size]
        for case in own:
            yield bench.run(case, rounds=rounds, rewrites=case is own[-1])
        shutil.rmtree(folder / f"silver-{size}")


class _Bench:
    """Orders table and two copies of it: one for the hand-written pipeline, one for the plain MERGE."""

    def __init__(self, orders: Orders, folder: Path) -> None:
        self._orders, self._turn = orders, 0
        self._by_hand, self._copy = (copied(orders, folder / f"{name}-{orders.rows}") for name in ("by-hand", "copy"))
        self._rows = str(folder / f"rows-{orders.rows}")

    def run(self, case: Case, *, rounds: int, rewrites: bool = False) -> Compared:
        """Measure *rounds* changes. Scattered changes hit other documents in each round, recent ones the same.

        Raises:
            RuntimeError: A method did not update exactly the changed documents.
        """
        silver, by_hand, merge = [], [], []
        for _ in range(rounds):
            self._turn += 1
            self._orders.change(chosen(case.rows, case.changed, case.where, self._turn))
            silver.append(self._updating(case, self._orders.ctx.tables, self._silver))
            by_hand.append(
                self._updating(case, self._by_hand, lambda: merge_by_hand(self._by_hand, self._orders.newest_batch()))
            )
            self._keep_changed()
            merge.append(self._updating(case, self._copy, self._merge))
        rewrite = cost(self._copy, self._rewrite) if rewrites else None
        return Compared(case, typical(silver), typical(by_hand), typical(merge), rewrite)

    def _updating(self, case: Case, tables: Tables, run: Callable[[], int]) -> Cost:
        updated: list[int] = []
        used = cost(tables, lambda: updated.append(run()))
        if updated != [case.changed]:
            raise RuntimeError(f"{case}: {updated} documents of {tables.lake.root} were updated")
        return used

    def _silver(self) -> int:
        (result,) = run_silver(self._orders.ctx)
        return result.updated

    def _keep_changed(self) -> None:
        changed = self._orders.ctx.tables.read(ORDERS).where(F.col("revision") == self._orders.batch)
        changed.write.mode("overwrite").parquet(self._rows)

    def _changed(self) -> DataFrame:
        return self._orders.ctx.spark.read.parquet(self._rows)

    def _merge(self) -> int:
        rows = self._changed()
        rule = MergeRule(("_key",)).update(rows.columns, when=_GUARD).insert(rows.columns)
        return self._copy.merge(ORDERS, rows, rule).updated

    def _rewrite(self) -> None:
        others = self._copy.read(ORDERS).join(self._changed().select("_key"), "_key", "left_anti")
        everything = others.unionByName(self._changed())
        everything.write.format("delta").mode("overwrite").save(self._copy.lake.path(ORDERS))


def copied(orders: Orders, root: Path) -> Tables:
    """Return a lake with a copy of the orders table."""
    copy = Tables(orders.ctx.spark, Lake(root=str(root)))
    shutil.copytree(orders.folder, copy.lake.path(ORDERS), copy_function=_linked)
    return copy


def cost(tables: Tables, run: Callable[[], object]) -> Cost:
    """Return the cost of *run*, with the files of the orders table that were opened."""
    table = Path(tables.lake.path(ORDERS))
    jvm = next(child for child in psutil.Process().children(recursive=True) if child.name() == "java")
    folders = {file.parent for file in table.rglob("*.parquet")} - {table / "_delta_log"}
    before = jvm.io_counters()
    with ReadWatch(*folders) as reads:
        started = time.perf_counter()
        run()
        seconds = time.perf_counter() - started
    after = jvm.io_counters()
    files = sum(file.suffix == ".parquet" for file in reads.files)
    return Cost(seconds, files, after.read_chars - before.read_chars, after.write_chars - before.write_chars)


def typical(rounds: Sequence[Cost]) -> Cost:
    """Return the median seconds of *rounds*, and the other figures of the last one."""
    last = rounds[-1]
    return Cost(statistics.median(cost.seconds for cost in rounds), last.files, last.read, last.written)


def _linked(source: str, target: str) -> None:
    """Link data files, which never change. Copy log files: the pointer to the last checkpoint changes."""
    if source.endswith(".parquet") and "_delta_log" not in source:
        os.link(source, target)
    else:
        shutil.copy2(source, target)
