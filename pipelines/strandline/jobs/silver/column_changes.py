"""Columns that a batch needs, by the settings of silver, and the record of changes."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import UTC, datetime

import pyarrow as pa

from strandline.io.tables.table_store import TableStore
from strandline.model.namespaces import Namespace
from strandline.model.shape import Compatibility, Shape
from strandline.model.table_schemas import SCHEMA_CHANGES
from strandline.model.tables import TableName
from strandline.model.tenants import group_columns
from strandline.settings.silver import SilverSettings
from strandline.silver.schema.census import Census
from strandline.silver.schema.evolution import ColumnLimits, ColumnPlan, SchemaChange, evolve

_log = logging.getLogger("strandline.silver")
_SCHEMA_CHANGES = pa.schema(
    {
        "at": pa.timestamp("us", tz="UTC"),
        **dict.fromkeys(("table", "path", "before", "after"), pa.string()),
        "bronze_version": pa.int64(),
    }
)


def evolved_shape(
    settings: SilverSettings, namespace: Namespace, shape: Shape, census: Census, compatibility: Compatibility
) -> tuple[Shape, list[SchemaChange]]:
    """Return the shape of a table after a batch, and the columns to add or widen. Raises as `evolve`.

    Args:
        shape: Stored shape of the table.
        census: Census of the batch.
    """
    limits = ColumnLimits(settings.max_columns, settings.max_depth, settings.field_name_adjustment_mode, compatibility)
    pattern = settings.pattern_of(str(namespace))
    groups = {} if pattern is None else group_columns(pattern)
    children = settings.children_of(str(namespace))
    arrays, left_out = ({one.path for one in some} for some in (children, [one for one in children if not one.keep]))
    declared = settings.declared(str(namespace))
    plan = ColumnPlan(settings.schema_mode, declared, groups, frozenset(arrays), frozenset(left_out))
    return evolve(shape, census, limits, plan)


def warn_at_limit(settings: SilverSettings, table: TableName, shape: Shape) -> None:
    """Warn if a table whose columns have changed is at their limit."""
    if shape.leaves >= settings.max_columns:
        _log.warning("%s has %d columns, silver.max_columns: new fields go to _rescued", table, shape.leaves)


def record_schema_changes(
    tables: TableStore, table: TableName, changes: Iterable[SchemaChange], bronze_version: int
) -> None:
    """I/O: writes one commit to ``control.schema_changes``. The table must exist."""
    now = datetime.now(UTC)
    rows = [
        {
            "at": now,
            "table": str(table),
            "path": ".".join(change.path),
            "before": change.before,
            "after": change.after,
            "bronze_version": bronze_version,
        }
        for change in changes
    ]
    tables.append_rows(SCHEMA_CHANGES, pa.Table.from_pylist(rows, _SCHEMA_CHANGES))
