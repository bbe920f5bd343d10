"""Base of silver and history tables: typed columns that follow a shape."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import functions as F
from pyspark.sql import types as T

from strandline.errors import ContractError
from strandline.io.spark.platform import is_databricks
from strandline.io.spark.races import OvertakenError
from strandline.io.spark.spark_versions import refuse_native_tables
from strandline.io.tables.ddl import schema_of
from strandline.io.tables.spark_tables import Tables
from strandline.model.shape import Compatibility, Shape, fold_case
from strandline.model.tables import quoted, quoted_path
from strandline.silver.compatibility import (
    MAPPED,
    UNCLUSTERED,
    compatibility_in,
    is_mapped_in,
    properties_of,
)
from strandline.silver.constraints import Constraints
from strandline.silver.owned_table import INHERITED, OwnedTable, shape_in, shape_properties
from strandline.silver.schema.evolution import SchemaChange
from strandline.silver.schema.stored_columns import column_paths, has_value, names_to_map

_log = logging.getLogger("strandline.silver")


@dataclass(frozen=True)
class TypedTable(OwnedTable):
    """A table whose typed columns follow a shape. Spark writes it."""

    tables: Tables

    def _check_readable(self, compatibility: Compatibility) -> None:
        if compatibility == "native" and not is_databricks(self.tables.spark):  # Databricks has a reader of its own
            refuse_native_tables(self.tables.spark.version)

    def create_like(self, other: TypedTable, owner: str, *, cluster_by: Sequence[str]) -> None:
        """Create an empty table with the columns of *other*, if it does not exist. I/O: at most one commit."""
        originals = self.tables.properties(other.name)
        properties = {
            **properties_of(compatibility_in(originals), is_mapped=is_mapped_in(originals)),
            **self.owner_property(owner),
            **{name: originals[name] for name in INHERITED if name in originals},
            **({} if cluster_by else UNCLUSTERED),
        }
        self.tables.create(self.name, self.tables.read(other.name).schema, properties=properties, cluster_by=cluster_by)

    def change_schema(self, shape: Shape, changes: Sequence[SchemaChange], *, before: Shape) -> None:
        """Add and widen columns, then store *shape*.

        I/O: reads the table's schema and properties; writes one commit for all added columns, one for each widened
        column, one for the shape.

        Args:
            shape: New shape of the table.
            changes: Columns to add or widen.
            before: Stored shape from which *changes* were derived.

        Raises:
            ContractError: A column to add already exists, with another type, and holds values.
            OvertakenError: The stored shape is no longer *before*: another run has changed it.

        Effects on failure:
            Some columns may exist while the old shape is still stored. Calling again is safe, also with other changes.
            Nothing is merged before the shape is stored, so the new columns are empty. A column that now needs another
            type is dropped and added again.
        """
        self._require_shape(before)
        table = self.tables.lake.sql(self.name)
        changes = [change for change in changes if change.is_kept]
        added = self._missing_columns([change for change in changes if not change.before])
        if added:
            self._map_columns(added)
            columns = ", ".join(f"{quoted_path(change.path)} {change.after}" for change in added)
            self.tables.spark.sql(f"ALTER TABLE {table} ADD COLUMNS ({columns})")
        for change in changes:
            if change.before:
                self.tables.spark.sql(
                    f"ALTER TABLE {table} ALTER COLUMN {quoted_path(change.path)} TYPE {change.after}"
                )
        self._require_shape(before)  # again: adding columns takes time, and another run may have been faster
        self.tables.set_properties(self.name, shape_properties(shape))

    def _map_columns(self, added: Sequence[SchemaChange]) -> None:
        """Give the table column mapping if a name needs it. I/O: at most one commit."""
        names = [name for change in added for name in names_to_map(_type(change.after), change.path)]
        if not names or is_mapped_in(self.tables.properties(self.name)):
            return
        self.tables.set_properties(self.name, MAPPED)
        _log.warning(
            "%s has column mapping now, because Parquet cannot hold the field name %r: its readers need Delta's feature"
            " columnMapping (silver.field_name_adjustment_mode: avro_unicode and strandline rebuild %s avoid it)",
            self.name,
            ".".join(names[0]),
            self.name.name,
        )

    def _require_shape(self, expected_shape: Shape) -> None:
        if shape_in(self.tables.properties(self.name)) != expected_shape:
            raise OvertakenError(f"another run has changed the columns of {self.name}", next_step="strandline silver")

    def _missing_columns(self, added: Sequence[SchemaChange]) -> list[SchemaChange]:
        """Return the columns of *added* that must be added.

        I/O: drops empty columns with another name case or type, left by a run that ended before its MERGE. At most one
        commit.
        """
        rows = self.tables.read(self.name)
        present, missing, dropped = column_paths(rows.schema), [], []
        for change in added:
            path, kind = present.get(tuple(map(fold_case, change.path)), ((), None))
            if kind is None:
                missing.append(change)
            elif path != change.path or kind.simpleString() != _type(change.after).simpleString():
                if not rows.where(has_value(F.col(quoted(path[0])), rows.schema[path[0]].dataType, path[1:])).isEmpty():
                    raise ContractError(
                        f"{self.name} has {'.'.join(path)} as {kind.simpleString()}, "
                        "which was not made by strandline silver",
                        next_step="rename the column",
                    )
                missing.append(change)
                dropped.append(path)
        if dropped and not is_mapped_in(self.tables.properties(self.name)):
            raise ContractError(
                f"an interrupted run left the column {'.'.join(dropped[0])} in {self.name} with another type, and a"
                " table without column mapping cannot drop it",
                next_step=f"strandline stop, strandline rebuild {self.name}, strandline start",
            )
        if dropped:
            columns = ", ".join(map(quoted_path, dropped))
            self.tables.spark.sql(f"ALTER TABLE {self.tables.lake.sql(self.name)} DROP COLUMNS ({columns})")
        return missing

    def constraints(self) -> Constraints:
        """Return the constraints that the user put on the table. I/O: reads its properties and columns."""
        return Constraints.of(self.tables.properties(self.name), self.tables.read(self.name).schema)


def _type(ddl: str) -> T.DataType:
    return schema_of(f"c {ddl}")["c"].dataType
