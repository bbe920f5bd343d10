"""A table that a collection owns: its creation, its owner, its shape and its progress. All are in its properties."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from strandline.errors import ContractError
from strandline.io.tables.table_store import CHANGE_FEED, TableStore, own_tables
from strandline.model.lake_format import is_ours
from strandline.model.namespaces import Namespace
from strandline.model.shape import Compatibility, Shape
from strandline.model.tables import TableName
from strandline.silver.compatibility import UNCLUSTERED, bookkeeping_ddl, compatibility_in, properties_of
from strandline.silver.progress import Progress

_SHAPE: Final = "strandline.shape"
_NAMESPACE, _SOURCE = "strandline.namespace", "strandline.source"
HISTORY_OWNER: Final = "the history of "  # unambiguous: a database name cannot contain a space
PATTERN: Final = "strandline.from"
"""Property of a tenant table: the pattern of its collections."""
INHERITED: Final = (_SHAPE, _SOURCE, PATTERN)
"""Properties that a copy of a table has, too."""
ELEMENTS_OF: Final = "the elements of "
"""Beginning of the owner of a child table: no database's name has a space."""
PARENT: Final = "strandline.parent"
"""Property of a child table: the collection of its parent."""

NEXT_STEP_WHEN_SHARED: Final = (
    "set silver.naming: database_collection without a silver.table_delimiter: then no two collections share a table, "
    "unless silver.tables names it"
)


@dataclass(frozen=True)
class OwnedTable:
    """One table of a collection, by its properties. Shape and progress are among them, so RESTORE and DROP apply to
    them, too."""

    tables: TableStore
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
        more: Mapping[str, str] = MappingProxyType({}),
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
            more: More properties of a new table.

        Returns:
            The table's properties.

        Raises:
            ContractError: The table has another owner or another source.
            ConfigurationError: This Spark cannot read tables of that compatibility.
        """
        self._check_readable(compatibility)
        properties = properties_of(compatibility, skipping=skipping) | {_NAMESPACE: owner, _SOURCE: source}
        properties |= {**({} if cluster_by else UNCLUSTERED), **more}
        columns = bookkeeping_ddl(ddl, compatibility)
        self.tables.create_table(self.name, columns, properties=properties, clustered_by=cluster_by)
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
        self.tables.add_missing_columns(self.name, bookkeeping_ddl(ddl, compatibility_in(current)))
        return current

    def _check_readable(self, compatibility: Compatibility) -> None:
        """Raise ConfigurationError if the engine cannot read tables of that compatibility."""

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

    def set_progress(self, progress: Progress, more: Mapping[str, str]) -> None:
        """Store the progress and *more* properties. Call after the MERGE: a crash before this only repeats the MERGE.

        I/O: one commit. Idempotent.
        """
        self.tables.set_properties(self.name, {**progress.properties, **more})

    def require(self, columns: Sequence[str]) -> None:
        """Check that the table has all *columns*. I/O: reads the table's schema.

        Raises:
            ContractError: A column is missing because somebody dropped or renamed it.
        """
        existing = set(self.tables.columns(self.name))
        missing = next((column for column in columns if column not in existing), None)
        if missing is not None:
            raise ContractError(
                f"{self.name} no longer has {missing}: it was dropped or renamed",
                next_step=f"name it as it was, or strandline rebuild {self.name}: "
                "it makes the columns anew, from bronze",
            )

    @staticmethod
    def owner_property(owner: str) -> dict[str, str]:
        """Return the table property that stores *owner*."""
        return {_NAMESPACE: owner}


def collection_of(owner: str) -> Namespace:
    """Return the collection of an *owner*, for both a silver table and a history table."""
    return Namespace.parse(owner.removeprefix(HISTORY_OWNER))


def owners_in(tables: TableStore, source: str) -> Iterator[str]:
    """Return the owners of the silver and history tables that *source* feeds.

    I/O: reads the properties of every silver table.
    """
    return (owner for _, owner in _owned_by(tables, source) if not owner.startswith(ELEMENTS_OF))


def child_tables_in(tables: TableStore, source: str) -> dict[TableName, str]:
    """Return the collection of each child table that *source* feeds. I/O: reads properties of silver tables."""
    return {
        name: tables.properties(name)[PARENT]
        for name, owner in _owned_by(tables, source)
        if owner.startswith(ELEMENTS_OF)
    }


def _owned_by(tables: TableStore, source: str) -> Iterator[tuple[TableName, str]]:
    for name in own_tables(tables, "silver"):
        properties = tables.properties(name)
        if properties.get(_SOURCE) == source and _NAMESPACE in properties:
            yield name, properties[_NAMESPACE]


def shape_in(properties: Mapping[str, str]) -> Shape:
    """Return the shape stored in a table's properties. An empty struct for a new table."""
    return Shape.from_json(json.loads(properties[_SHAPE])) if _SHAPE in properties else Shape("struct")


def shape_properties(shape: Shape) -> dict[str, str]:
    """Return the table property that stores *shape*."""
    return {_SHAPE: json.dumps(shape.to_json())}
