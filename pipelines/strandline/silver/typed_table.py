"""Base of silver and history tables: typed columns that follow a shape, and progress stored in the table."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import functions as F
from pyspark.sql import types as T

from strandline.errors import ContractError
from strandline.io.spark.conflicts import OvertakenError
from strandline.io.spark.platform import is_databricks
from strandline.io.spark.spark_versions import refuse_native_tables
from strandline.io.tables.ddl import schema_of
from strandline.io.tables.spark_tables import Tables
from strandline.io.tables.table_store import own_tables
from strandline.io.tables.table_swap import CHANGE_FEED
from strandline.model.lake_format import is_ours
from strandline.model.shape import Compatibility, Shape, fold_case
from strandline.model.tables import TableName, quoted, quoted_path
from strandline.silver.compatibility import (
    MAPPED,
    UNCLUSTERED,
    bookkeeping_ddl,
    compatibility_in,
    is_mapped_in,
    properties_of,
)
from strandline.silver.constraints import Constraints
from strandline.silver.progress import Progress
from strandline.silver.schema.evolution import SchemaChange
from strandline.silver.schema.stored_columns import column_paths, has_value, names_to_map

_SHAPE: Final = "strandline.shape"
_NAMESPACE, _SOURCE = "strandline.namespace", "strandline.source"

_log = logging.getLogger("strandline.silver")

NEXT_STEP_WHEN_SHARED: Final = (
    "set silver.naming: database_collection without a silver.table_delimiter: then no two collections share a table"
)


@dataclass(frozen=True)
class TypedTable:
    """One table of a collection. Shape and progress are table properties, so RESTORE and DROP apply to them, too."""

    tables: Tables
    name: TableName

    def create(
        self,
        ddl: str,
        owner: str,
        source: str,
        compatibility: Compatibility,
        *,
        cluster_by: Sequence[str],
        skipping: tuple[str, ...] = (),
    ) -> dict[str, str]:
        """Create the empty table if it does not exist.

        I/O: reads table properties; writes the table, and missing columns of *ddl*. Idempotent.

        Args:
            ddl: Bookkeeping columns.
            owner: Collection, or history of a collection, that the table holds.
            source: Source whose bronze table feeds the table.
            compatibility: Compatibility of a new table. An existing table keeps its own.
            cluster_by: Columns for liquid clustering. Empty: the table has none.
            skipping: Columns with file statistics, in addition to ``_key`` and ``_position``.

        Returns:
            The table's properties.

        Raises:
            ContractError: The table has another owner or another source.
            ConfigurationError: This Spark cannot read tables of that compatibility.
        """
        self._check_readable(compatibility)
        properties = properties_of(compatibility, skipping=skipping) | {_NAMESPACE: owner, _SOURCE: source}
        properties |= {} if cluster_by else UNCLUSTERED
        schema = schema_of(bookkeeping_ddl(ddl, compatibility))
        self.tables.create(self.name, schema, properties=properties, cluster_by=cluster_by)
        current = self.tables.properties(self.name)
        if current.get(_NAMESPACE) != owner:
            raise ContractError(
                f"{self.name} holds {current.get(_NAMESPACE, 'something else')}, not {owner}",
                next_step=self._next_step_when_shared(),
            )
        if current.get(_SOURCE, source) != source:
            raise ContractError(
                f"{self.name} is fed by source {current[_SOURCE]}, and this is {source}: "
                "two sources of one lake never share a table",
                next_step=f"give {source} a lake of its own (lake.root or lake.schema), "
                "or rename the collection in one of them",
            )
        self._check_readable(compatibility_in(current))
        if current.get(CHANGE_FEED) != "true":  # an interrupted table swap left it off
            self.tables.set_properties(self.name, {CHANGE_FEED: "true"})
        self.tables.add_columns(self.name, schema_of(bookkeeping_ddl(ddl, compatibility_in(current))))
        return current

    def _check_readable(self, compatibility: Compatibility) -> None:
        if compatibility == "native" and not is_databricks(self.tables.spark):  # Databricks has a reader of its own
            refuse_native_tables(self.tables.spark.version)

    def create_like(self, other: TypedTable, owner: str, *, cluster_by: Sequence[str]) -> None:
        """Create an empty table with the columns of *other*, if it does not exist. I/O: at most one commit."""
        originals = self.tables.properties(other.name)
        properties = {
            **properties_of(compatibility_in(originals), is_mapped=is_mapped_in(originals)),
            _NAMESPACE: owner,
            **{name: originals[name] for name in (_SHAPE, _SOURCE) if name in originals},
            **({} if cluster_by else UNCLUSTERED),
        }
        self.tables.create(self.name, self.tables.read(other.name).schema, properties=properties, cluster_by=cluster_by)

    def owner(self) -> str | None:
        """Return the stored owner: the collection or history that the table holds.

        None: no such table, or it is not ours. I/O: reads table properties.
        """
        properties = self.tables.properties(self.name) if self.tables.exists(self.name) else {}
        return properties.get(_NAMESPACE) if is_ours(self.name, properties) else None

    def belongs_to(self, owner: str, source: str) -> bool:
        """Return True if the table exists, holds *owner* and is fed by *source*. I/O: reads table properties."""
        if not self.tables.exists(self.name):
            return False
        return self.is_fed_by(self.name, self.tables.properties(self.name), owner, source)

    @staticmethod
    def is_fed_by(table: TableName, properties: Mapping[str, str], owner: str, source: str) -> bool:
        """Return True if *table*, with these properties, is ours, holds *owner* and is fed by *source*."""
        is_owned = properties.get(_NAMESPACE) == owner and properties.get(_SOURCE, source) == source
        return is_owned and is_ours(table, properties)

    def _next_step_when_shared(self) -> str:
        return NEXT_STEP_WHEN_SHARED

    def progress(self) -> Progress | None:
        """Return the stored progress.

        None: the table does not exist, or had no run yet. I/O: reads table properties.
        """
        if not self.tables.exists(self.name):
            return None
        return Progress.stored_in(self.tables.properties(self.name))

    def change_schema(self, shape: Shape, changes: Sequence[SchemaChange], *, known: Shape) -> None:
        """Add and widen columns, then store *shape*.

        I/O: reads the table's schema and properties; writes one commit for all added columns, one for each widened
        column, one for the shape.

        Args:
            shape: New shape of the table.
            changes: Columns to add or widen.
            known: Stored shape from which *changes* were derived.

        Raises:
            ContractError: A column to add already exists, with another type, and holds values.
            OvertakenError: The stored shape is no longer *known*: another run has changed it.

        Effects on failure:
            Some columns may exist while the old shape is still stored. Calling again is safe, also with other changes.
            Nothing is merged before the shape is stored, so the new columns are empty. A column that now needs another
            type is dropped and added again.
        """
        self._require_shape(known)
        table = self.tables.lake.sql(self.name)
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
        self._require_shape(known)  # again: adding columns takes time, and another run may have been faster
        self.tables.set_properties(self.name, {_SHAPE: json.dumps(shape.to_json())})

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

    def require(self, columns: Sequence[str]) -> None:
        """Check, before a MERGE, that the table has all *columns*. I/O: reads the table's schema.

        Raises:
            ContractError: A column is missing because somebody dropped or renamed it. Nothing was merged.
        """
        existing = set(self.tables.read(self.name).columns)
        missing = next((column for column in columns if column not in existing), None)
        if missing is not None:
            raise ContractError(
                f"{self.name} no longer has {missing}: it was dropped or renamed",
                next_step=f"name it as it was, or strandline rebuild {self.name}: "
                "it makes the columns anew, from bronze",
            )

    def constraints(self) -> Constraints:
        """Return the constraints that the user put on the table. I/O: reads its properties and columns."""
        return Constraints.of(self.tables.properties(self.name), self.tables.read(self.name).schema)

    def set_progress(self, progress: Progress, more: Mapping[str, str]) -> None:
        """Store the progress and *more* properties. I/O: one commit."""
        self.tables.set_properties(self.name, {**progress.properties, **more})


def owners_in(tables: Tables, source: str) -> Iterator[str]:
    """Return the owners of all silver tables that *source* feeds. I/O: reads the properties of every silver table."""
    for name in own_tables(tables, "silver"):
        properties = tables.properties(name)
        if properties.get(_SOURCE) == source and _NAMESPACE in properties:
            yield properties[_NAMESPACE]


def shape_in(properties: Mapping[str, str]) -> Shape:
    """Return the shape stored in a table's properties. An empty struct for a new table."""
    return Shape.from_json(json.loads(properties[_SHAPE])) if _SHAPE in properties else Shape("struct")


def _type(ddl: str) -> T.DataType:
    return schema_of(f"c {ddl}")["c"].dataType
