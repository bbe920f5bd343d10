"""What the tables of one collection have in common: typed columns that follow a shape, and the progress that travels with the table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pipelines.errors import ContractError
from pipelines.io.conflicts import OvertakenError
from pipelines.io.ddl import schema_of
from pipelines.io.table_swap import CHANGE_FEED
from pipelines.io.tables import Tables
from pipelines.model.shape import Shape, caseless
from pipelines.model.tables import TableName, quoted
from pipelines.silver.schema.evolution import SchemaChange

_SHAPE, _PROGRESS = "strandline.shape", "strandline.bronze_progress"
_NAMESPACE, _SOURCE = "strandline.namespace", "strandline.source"

PROPERTIES: Final = {
    "delta.columnMapping.mode": "name",  # any legal field name is a legal column
    "delta.enableTypeWidening": "true",
    "delta.enableDeletionVectors": "true",
    CHANGE_FEED: "true",
    "delta.feature.variantType": "supported",
    "delta.dataSkippingStatsColumns": "_key,_position",
}

NEXT_STEP_WHEN_SHARED: Final = (
    "set silver.naming: database_collection without a silver.table_delimiter: then no two collections share a table"
)


@dataclass(frozen=True)
class Progress:
    """Up to which version of which bronze table a silver table is complete."""

    bronze_id: str
    version: int


@dataclass(frozen=True)
class TypedTable:
    """One table of a collection. Shape and progress are properties of the table: RESTORE and DROP take them along."""

    tables: Tables
    name: TableName

    def create(
        self, ddl: str, owner: str, source: str, *, cluster_by: Sequence[str], skipping: Sequence[str] = ()
    ) -> dict[str, str]:
        """I/O: creates the empty table if it is not there. Idempotent.

        Args:
            ddl: Columns beside those of the shape.
            owner: What the table is of.
            source: Whose bronze feeds it.
            skipping: More columns by which files are skipped.

        Returns:
            The table's properties.

        Raises:
            ContractError: The table is of something else.
        """
        statistics = {
            "delta.dataSkippingStatsColumns": ",".join([PROPERTIES["delta.dataSkippingStatsColumns"], *skipping])
        }
        properties = PROPERTIES | statistics | {_NAMESPACE: owner, _SOURCE: source}
        self.tables.create(self.name, schema_of(ddl), properties=properties, cluster_by=cluster_by)
        found = self.tables.properties(self.name)
        if found.get(_NAMESPACE) != owner:
            raise ContractError(
                f"{self.name} holds {found.get(_NAMESPACE, 'something else')}, not {owner}",
                next_step=self._next_step_when_shared(),
            )
        if found.get(_SOURCE, source) != source:  # a table of an older release does not tell
            raise ContractError(
                f"{self.name} is fed by source {found[_SOURCE]}, and this is {source}: two sources of one lake never share a table",
                next_step=f"give {source} a lake of its own (lake.root or lake.schema), or rename the collection in one of them",
            )
        if found.get(CHANGE_FEED) != "true":  # a swap was cut off
            self.tables.set_properties(self.name, {CHANGE_FEED: "true"})
        self.tables.add_columns(self.name, schema_of(ddl))
        return found

    def create_like(self, other: TypedTable, owner: str, *, cluster_by: Sequence[str]) -> None:
        """I/O: creates the empty table with the columns of *other*, if it is not there."""
        found = self.tables.properties(other.name)
        properties = {
            **PROPERTIES,
            _NAMESPACE: owner,
            **{name: found[name] for name in (_SHAPE, _SOURCE) if name in found},
        }
        self.tables.create(self.name, self.tables.read(other.name).schema, properties=properties, cluster_by=cluster_by)

    def owner(self) -> str | None:
        """I/O: what the table is of; None where there is no such table."""
        return self.tables.properties(self.name).get(_NAMESPACE) if self.tables.exists(self.name) else None

    def belongs_to(self, owner: str, source: str) -> bool:
        """I/O: whether there is such a table, of *owner*, fed by *source*."""
        if not self.tables.exists(self.name):
            return False
        found = self.tables.properties(self.name)
        return found.get(_NAMESPACE) == owner and found.get(_SOURCE, source) == source

    def _next_step_when_shared(self) -> str:
        return NEXT_STEP_WHEN_SHARED

    def progress(self) -> Progress | None:
        """I/O: the progress that the table itself notes; None where there is no table."""
        if not self.tables.exists(self.name):
            return None
        return progress_in(self.tables.properties(self.name))

    def change_schema(self, shape: Shape, changes: Sequence[SchemaChange], *, known: Shape) -> None:
        """I/O: adds and widens columns, then stores *shape*.

        Args:
            known: What was stored when *changes* were found.

        Raises:
            ContractError: A column that is to be added is there, of another type, and holds values.
            OvertakenError: Another shape than *known* is stored by now.

        Effects on failure:
            Some columns may be there while the stored shape is still the old one. Calling again is safe, also with other changes: nothing
            is merged before the shape is stored, so the columns are empty, and one that is now to be of another type is made anew.
        """
        self._require_shape(known)
        table = self.tables.lake.sql(self.name)
        added = self._without_those_there([change for change in changes if not change.before])
        if added:
            columns = ", ".join(f"{_dotted(change.path)} {change.after}" for change in added)
            self.tables.spark.sql(f"ALTER TABLE {table} ADD COLUMNS ({columns})")
        for change in changes:
            if change.before:
                self.tables.spark.sql(f"ALTER TABLE {table} ALTER COLUMN {_dotted(change.path)} TYPE {change.after}")
        self._require_shape(known)  # once more, for columns take their time
        self.tables.set_properties(self.name, {_SHAPE: json.dumps(shape.to_json())})

    def _require_shape(self, known: Shape) -> None:
        if shape_in(self.tables.properties(self.name)) != known:
            raise OvertakenError(f"another run has changed the columns of {self.name}", next_step="strandline silver")

    def _without_those_there(self, added: Sequence[SchemaChange]) -> list[SchemaChange]:
        """I/O: those of *added* that the table lacks. One commit, or none, drops what a run that never merged has left otherwise."""
        rows = self.tables.read(self.name)
        present, lacking, going = _paths(rows.schema), [], []
        for change in added:
            path, kind = present.get(tuple(map(caseless, change.path)), ((), None))
            if kind is None:
                lacking.append(change)
            elif (
                path != change.path
                or kind.simpleString() != schema_of(f"c {change.after}")["c"].dataType.simpleString()
            ):
                if not rows.where(_holds(F.col(quoted(path[0])), rows.schema[path[0]].dataType, path[1:])).isEmpty():
                    raise ContractError(
                        f"{self.name} has {'.'.join(path)} as {kind.simpleString()}, which was not made by strandline silver",
                        next_step="rename the column",
                    )
                lacking.append(change)
                going.append(_dotted(path))
        if going:
            self.tables.spark.sql(f"ALTER TABLE {self.tables.lake.sql(self.name)} DROP COLUMNS ({', '.join(going)})")
        return lacking

    def require(self, columns: Sequence[str]) -> None:
        """I/O: before a MERGE that sets *columns*.

        Raises:
            ContractError: The table lacks one of them: somebody dropped or renamed it. Nothing was merged.
        """
        held = set(self.tables.read(self.name).columns)
        gone = next((column for column in columns if column not in held), None)
        if gone is not None:
            raise ContractError(
                f"{self.name} no longer has {gone}: it was dropped or renamed",
                next_step=f"name it as it was, or strandline rebuild {self.name}: it makes the columns anew, from bronze",
            )

    def note_progress(self, progress: Progress, more: Mapping[str, str]) -> None:
        """I/O: one commit that notes progress, and *more* properties with it."""
        self.tables.set_properties(
            self.name, {_PROGRESS: json.dumps({"bronze": progress.bronze_id, "version": progress.version}), **more}
        )


def owners_in(tables: Tables, source: str) -> Iterator[str]:
    """I/O: what the tables of silver are of that say themselves that *source* feeds them."""
    for name in tables.names("silver"):
        found = tables.properties(name)
        if found.get(_SOURCE) == source and _NAMESPACE in found:
            yield found[_NAMESPACE]


def shape_in(properties: Mapping[str, str]) -> Shape:
    """The shape that a table's properties tell of; a new table has no column yet."""
    return Shape.from_json(json.loads(properties[_SHAPE])) if _SHAPE in properties else Shape("struct")


def progress_in(properties: Mapping[str, str]) -> Progress | None:
    """The progress that a table's properties tell of; None before the first run."""
    stored = json.loads(properties[_PROGRESS]) if _PROGRESS in properties else None
    return Progress(stored["bronze"], stored["version"]) if stored else None


def from_source(columns: Sequence[str]) -> dict[str, str]:
    """What a MERGE sets where it takes *columns* as the source (``s``) has them."""
    return {quoted(name): f"s.{quoted(name)}" for name in columns}


def _dotted(path: Sequence[str]) -> str:
    return ".".join(quoted(part) for part in path)


def _paths(
    schema: T.DataType, prefix: tuple[str, ...] = ()
) -> dict[tuple[str, ...], tuple[tuple[str, ...], T.DataType]]:
    """Every column's path, as `SchemaChange` spells it, and type: by the path, `caseless`."""
    if isinstance(schema, T.ArrayType):
        return _paths(schema.elementType, (*prefix, "element"))
    if not isinstance(schema, T.StructType):
        return {}
    found: dict[tuple[str, ...], tuple[tuple[str, ...], T.DataType]] = {}
    for column in schema.fields:
        path = (*prefix, column.name)
        found |= {tuple(map(caseless, path)): (path, column.dataType)} | _paths(column.dataType, path)
    return found


def _holds(column: Column, kind: T.DataType, path: Sequence[str]) -> Column:
    """Whether there is a value in what *path* names below a column of that *kind*."""
    if not path:
        return column.isNotNull()
    if isinstance(kind, T.ArrayType):
        element = kind.elementType
        return F.exists(column, lambda item: _holds(item, element, path[1:]))
    assert isinstance(kind, T.StructType)  # of `_paths`
    return _holds(column[path[0]], kind[path[0]].dataType, path[1:])
