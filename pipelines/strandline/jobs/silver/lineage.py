"""Lineage of one silver table's part of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from strandline.io.tables.lineage import LineageRun, columns_of, is_told, told_run
from strandline.io.tables.table_store import TableStore
from strandline.model.lineage import Dataset, Input, Job, Output
from strandline.model.tables import TableName


@contextmanager
def merge_told(tables: TableStore, bronze: TableName, table: TableName) -> Iterator[Callable[[int], None]]:
    """Tell a run that merges *bronze* into *table*. Call the yielded function with the number of rows written.

    I/O: reads the columns of *table*, if runs are told.
    """
    if not is_told():
        yield lambda _: None
        return
    source, target = (Dataset.of_table(tables.lake, name) for name in (bronze, table))
    run = LineageRun(Job(str(table), "MERGE"), (Input(source),), (Output(target),))

    def wrote(rows: int) -> None:
        run.outputs = (Output(target, rows, columns_of(tables, table)),)

    with told_run(run):
        yield wrote
