"""Columns that a batch needs, by the settings of silver. Pure."""

from __future__ import annotations

from strandline.model.namespaces import Namespace
from strandline.model.shape import Compatibility, Shape
from strandline.settings.silver import SilverSettings
from strandline.silver.schema.census import Census
from strandline.silver.schema.evolution import ColumnLimits, ColumnPlan, SchemaChange, evolve


def evolved_shape(
    settings: SilverSettings, namespace: Namespace, shape: Shape, census: Census, compatibility: Compatibility
) -> tuple[Shape, list[SchemaChange]]:
    """Return the shape of a table after a batch, and the columns to add or widen. Raises as `evolve`.

    Args:
        shape: Stored shape of the table.
        census: Census of the batch.
    """
    limits = ColumnLimits(settings.max_columns, settings.max_depth, settings.field_name_adjustment_mode, compatibility)
    plan = ColumnPlan(settings.schema_mode, settings.declared(str(namespace)))
    return evolve(shape, census, limits, plan)
