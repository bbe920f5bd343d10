"""Layout of a silver table: the columns by which its files are clustered, and those with file statistics."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Final

from pyspark.sql import types as T

from strandline.errors import ContractError
from strandline.io.delta_log.file_statistics import STATISTICS
from strandline.io.tables.spark_tables import Tables
from strandline.model.layout import Layout
from strandline.model.shape import fold_case
from strandline.model.tables import TableName, quoted_path
from strandline.silver.compatibility import CLUSTER_BY, UNCLUSTERED
from strandline.silver.layout_properties import clustering_columns, clustering_in, list_of
from strandline.silver.schema.stored_columns import column_paths

_WITHOUT_ORDER: Final = (T.StructType, T.ArrayType, T.VariantType, T.BinaryType, T.BooleanType)
"""Types for which Delta keeps no smallest and largest value."""
_log = logging.getLogger("strandline.silver")


def lay_out(tables: Tables, table: TableName, layout: Layout, *, bookkeeping: Sequence[str]) -> None:
    """Give a table its layout. A column that the table does not have yet is left out, with a warning.

    Files that exist keep their order and their statistics until they are rewritten.

    I/O: reads properties and schema; writes up to three commits, or none.
    Idempotent.

    Args:
        bookkeeping: Bookkeeping columns with file statistics.

    Raises:
        ContractError: A column is a document, an array, a boolean or of mixed type. Nothing was changed.
    """
    current = tables.properties(table)
    is_default = CLUSTER_BY not in current or current[CLUSTER_BY] == UNCLUSTERED[CLUSTER_BY]
    if layout == Layout() and is_default and current.get(STATISTICS) == ",".join(bookkeeping):
        return
    schema = tables.read(table).schema
    cluster_by = clustering_columns(current, _existing(table, schema, layout.cluster_by))
    statistics = (*bookkeeping, *cluster_by[:-1], *_existing(table, schema, layout.statistics))
    target = {STATISTICS: list_of(statistics)}
    if cluster_by != clustering_in(current):
        # Delta clusters only by columns with statistics. The property of the clustering is set last: a run that is
        # killed before that repeats the statement.
        both = dict.fromkeys((*current.get(STATISTICS, "").split(","), *target[STATISTICS].split(",")))
        tables.set_properties(table, {STATISTICS: ",".join(both)})
        columns = ", ".join(quoted_path(name.split(".")) for name in cluster_by)
        tables.spark.sql(f"ALTER TABLE {tables.lake.sql(table)} CLUSTER BY ({columns})")
        target[CLUSTER_BY] = json.dumps(cluster_by)
    changed = {name: value for name, value in target.items() if current.get(name) != value}
    if changed:
        tables.set_properties(table, changed)


def _existing(table: TableName, schema: T.StructType, names: Sequence[str]) -> tuple[str, ...]:
    paths, existing = column_paths(schema), []
    for name in names:
        path, kind = paths.get(tuple(map(fold_case, name.split("."))), ((), None))
        if kind is None:
            _log.warning("silver.layout names %s, and %s has no such column yet", name, table)
        elif isinstance(kind, _WITHOUT_ORDER) or "element" in path[1:]:
            raise ContractError(
                f"silver.layout names {name}, and in {table} it is {kind.simpleString()}: files have no order by it",
                next_step="name a column of numbers, texts or times; strandline schema show lists them",
            )
        else:
            existing.append(".".join(path))
    return tuple(existing)
