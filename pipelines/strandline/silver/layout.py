"""Layout of a silver table: the columns by which its files are clustered, and those with file statistics."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import types as T

from strandline.errors import ContractError
from strandline.io.delta_log.file_statistics import STATISTICS
from strandline.io.tables.spark_tables import Tables
from strandline.model.layout import Layout
from strandline.model.shape import fold_case
from strandline.model.tables import TableName, quoted, quoted_path
from strandline.silver.compatibility import CLUSTER_BY, UNCLUSTERED
from strandline.silver.schema.stored_columns import column_paths

CLUSTERED_BY: Final = ("_key",)
_WORD: Final = re.compile(r"\w+")
_WITHOUT_ORDER: Final = (T.StructType, T.ArrayType, T.VariantType, T.BinaryType, T.BooleanType)
"""Types for which Delta keeps no smallest and largest value."""
_log = logging.getLogger("strandline.silver")


def clustering_in(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the clustering columns of a table, from its properties."""
    return tuple(json.loads(properties[CLUSTER_BY])) if CLUSTER_BY in properties else CLUSTERED_BY


def _clustering_columns(properties: Mapping[str, str], cluster_by: Sequence[str]) -> tuple[str, ...]:
    """Return the clustering columns that a table should have, with *cluster_by* of the settings."""
    return (*cluster_by, *CLUSTERED_BY) if cluster_by or clustering_in(properties) else ()


def is_laid_out(properties: Mapping[str, str], layout: Layout, *, bookkeeping: Sequence[str]) -> bool:
    """Return True if a table with these properties certainly has its layout, so that `lay_out` would do nothing."""
    columns = (*bookkeeping, *layout.cluster_by, *layout.statistics)
    is_clustered = clustering_in(properties) == _clustering_columns(properties, layout.cluster_by)
    return is_clustered and properties.get(STATISTICS) == _list_of(columns)


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
    cluster_by = _clustering_columns(current, _existing(table, schema, layout.cluster_by))
    statistics = (*bookkeeping, *cluster_by[:-1], *_existing(table, schema, layout.statistics))
    target = {STATISTICS: _list_of(statistics)}
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


def _list_of(columns: Sequence[str]) -> str:
    """Return the columns, once each, as Delta's list. A part that is no plain word is quoted."""
    parts = (
        ".".join(part if _WORD.fullmatch(part) else quoted(part) for part in column.split(".")) for column in columns
    )
    return ",".join(dict.fromkeys(parts))


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
