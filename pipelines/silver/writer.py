"""One silver table: its shape, its MERGE, and the progress that travels with it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pipelines.errors import ContractError
from pipelines.io.tables import Tables, schema_of
from pipelines.model.columns import SILVER_BOOKKEEPING_DDL
from pipelines.model.tables import TableName, quoted
from pipelines.silver.incarnations import Incarnations
from pipelines.silver.schema import SchemaChange
from pipelines.silver.shape import Shape

_SHAPE, _PROGRESS, _NAMESPACE, _FOLDS = "strandline.shape", "strandline.bronze", "strandline.namespace", "strandline.folds"
_INCARNATIONS = "strandline.incarnations"
_BOOKKEEPING = ("_position", "_op", "_deleted", "_cluster_time", "_bronze_version", "_collection_uuid", "_pending")

PROPERTIES = {
    "delta.columnMapping.mode": "name",  # any legal field name is a legal column
    "delta.enableTypeWidening": "true",
    "delta.enableDeletionVectors": "true",
    "delta.enableChangeDataFeed": "true",
    "delta.feature.variantType": "supported",
    "delta.dataSkippingStatsColumns": "_key,_position",
}


@dataclass(frozen=True)
class Progress:
    """Up to which version of which bronze table a silver table is complete."""

    bronze_id: str
    version: int


@dataclass(frozen=True)
class Opened:
    """What a silver table knows of itself."""

    shape: Shape
    progress: Progress | None
    incarnations: Incarnations


@dataclass(frozen=True)
class Merged:
    """Rows of one MERGE, counted by the commit."""

    inserted: int
    updated: int


@dataclass(frozen=True)
class SilverTable:
    """Reads and writes of ``silver.<collection>``. Shape and progress are properties of the table: RESTORE and DROP take them along."""

    tables: Tables
    name: TableName

    def open(self, namespace: str) -> Opened:
        """I/O: creates the empty table if it is not there. Idempotent.

        Raises:
            ContractError: The table holds another collection.
        """
        schema = schema_of(SILVER_BOOKKEEPING_DDL)
        self.tables.create(self.name, schema, properties=PROPERTIES | {_NAMESPACE: namespace}, cluster_by=("_key",))
        found = self.tables.properties(self.name)
        if found.get(_NAMESPACE) != namespace:
            raise ContractError(
                f"{self.name} holds {found.get(_NAMESPACE, 'something else')}, not {namespace}",
                next_step="set silver.naming: database_collection, so that two collections never share a table",
            )
        shape = Shape.from_json(json.loads(found[_SHAPE])) if _SHAPE in found else Shape("struct")
        return Opened(shape, _progress(found), Incarnations.from_json(found.get(_INCARNATIONS)))

    def progress(self) -> Progress | None:
        """I/O: the progress that the table itself notes; None where there is no table."""
        if not self.tables.exists(self.name):
            return None
        return _progress(self.tables.properties(self.name))

    def folds(self) -> bool:
        """Whether patches have ever come for the table, so that any row may hold some that wait."""
        return _FOLDS in self.tables.properties(self.name)

    def note_folding(self) -> None:
        """I/O: one commit, before the first patch is merged. Idempotent."""
        self.tables.set_properties(self.name, {_FOLDS: "true"})

    def change_schema(self, shape: Shape, changes: Sequence[SchemaChange]) -> None:
        """I/O: adds and widens columns, then stores *shape*.

        Effects on failure:
            Some columns may be there while the stored shape is still the old one. Calling again with the same changes is safe.
        """
        present = _paths(self.tables.read(self.name).schema)
        table = self.tables.lake.sql(self.name)
        added = [change for change in changes if not change.before and tuple(part.lower() for part in change.path) not in present]
        if added:
            columns = ", ".join(f"{_dotted(change.path)} {change.after}" for change in added)
            self.tables.spark.sql(f"ALTER TABLE {table} ADD COLUMNS ({columns})")
        for change in changes:
            if change.before:
                self.tables.spark.sql(f"ALTER TABLE {table} ALTER COLUMN {_dotted(change.path)} TYPE {change.after}")
        self.tables.set_properties(self.name, {_SHAPE: json.dumps(shape.to_json())})

    def merge(self, rows: DataFrame, *, deletes: Literal["soft", "hard"]) -> Merged:
        """MERGE *rows* by key under the position guard.

        Every row is the pair (newest change, newest document), each with its position. Larger wins, for each of the two on its own:
        a join semilattice, so any order, any batching and any repetition of rows ends in the same table. A late READ below a tombstone
        therefore fills in the tombstone's last values, and can never bring the document back. A row never mixes two incarnations of its
        collection: a change of another one takes the whole row, or nothing.

        I/O: one commit, or none. Idempotent by the positions.

        Args:
            rows: As `typed_rows` returns them; unique by ``_key``.
        """
        document = [name for name in rows.columns if name not in (*_BOOKKEEPING, "_key")]
        newer, newer_document = "s._position > t._position", "s._base_position > coalesce(t._base_position, '')"
        same_incarnation = "coalesce(s._collection_uuid = t._collection_uuid, true)"
        merge = self.tables.delta(self.name).alias("t").merge(rows.alias("s"), "t._key <=> s._key")
        if deletes == "hard":
            merge = merge.whenMatchedUpdate(f"{newer} AND s._deleted", _from_source([*document, *_BOOKKEEPING]))
        merge = merge.whenMatchedUpdate(
            f"{newer} AND ({newer_document} OR NOT {same_incarnation})", _from_source([*document, *_BOOKKEEPING])
        )
        merge = merge.whenMatchedUpdate(newer, _from_source(_BOOKKEEPING))
        late = f"{newer_document} AND {same_incarnation}" + ("" if deletes == "soft" else " AND NOT t._deleted")
        merge = merge.whenMatchedUpdate(late, _from_source([*document, "_pending"]))
        merge.whenNotMatchedInsert(values=_from_source(rows.columns)).execute()
        metrics = self.tables.history(self.name)[0]["operationMetrics"]
        return Merged(int(metrics.get("numTargetRowsInserted", 0)), int(metrics.get("numTargetRowsUpdated", 0)))

    def sweep(self, met: DataFrame, position: str, *, deletes: Literal["soft", "hard"]) -> int:
        """I/O: one MERGE that makes tombstones, at *position*, of living rows below it whose key is not among *met*. None, no commit.

        Args:
            met: Column ``key``.

        Returns:
            How many were retired.
        """
        below = (F.col("_position") < position) & ~F.col("_deleted")
        table = self.tables.read(self.name)
        gone = table.where(below).select("_key").join(met, F.col("_key").eqNullSafe(F.col("key")), "left_anti")
        if gone.isEmpty():
            return 0
        at = F.timestamp_seconds(F.lit(int(position[:8], 16)))
        values: dict[str, str | Column] = {"_deleted": F.lit(True), "_op": F.lit("d"), "_position": F.lit(position), "_cluster_time": at}
        if deletes == "hard":
            values |= dict.fromkeys(self._values(), F.lit(None))
        merge = self.tables.delta(self.name).alias("t").merge(gone.alias("s"), "t._key <=> s._key")
        merge.whenMatchedUpdate(F.expr("t._position") < position, values).execute()
        return int(self.tables.history(self.name)[0]["operationMetrics"].get("numTargetRowsUpdated", 0))

    def retire(self, incarnations: Incarnations, *, deletes: Literal["soft", "hard"]) -> None:
        """I/O: one commit that turns every row whose incarnation is over into a tombstone, at the position of its end. Idempotent."""
        tombstone: dict[str, str | Column] = {quoted(name): value for name, value in incarnations.tombstone().items()}
        if deletes == "hard":
            tombstone |= dict.fromkeys(self._values(), F.lit(None))
        self.tables.delta(self.name).update(incarnations.is_over(), tombstone)

    def _values(self) -> list[str]:
        """Quoted names of the columns that say what was in the document."""
        kept = {*_BOOKKEEPING, "_key"} - {"_pending"}
        return [quoted(name) for name in self.tables.read(self.name).columns if name not in kept]

    def archive(self, incarnations: Incarnations) -> list[TableName]:
        """I/O: copies the living rows of every incarnation that is over to a table of its own, one commit each. Idempotent: once they are
        retired there is nothing to copy, and what was copied stays.

        Returns:
            The tables, named after this one and the incarnation.
        """
        going = self.tables.read(self.name).where(incarnations.is_over() & ~F.col("_deleted"))
        found = [row[0] for row in going.select("_collection_uuid").distinct().collect()]
        archives = []
        for uuid in found:
            archive = TableName("silver", f"{self.name.name}_dropped_{(uuid or 'unknown')[:8]}")
            self.tables.create(archive, going.schema, properties=PROPERTIES, cluster_by=("_key",))
            self.tables.replace(archive, going.where(F.col("_collection_uuid").eqNullSafe(uuid)))
            archives.append(archive)
        return archives

    def advance(self, progress: Progress, incarnations: Incarnations) -> None:
        """I/O: one commit that notes progress and incarnations. After the MERGE: a crash between the two only repeats a MERGE."""
        noted = {_PROGRESS: json.dumps({"bronze": progress.bronze_id, "version": progress.version})}
        if incarnations != Incarnations():
            noted[_INCARNATIONS] = incarnations.to_json()
        self.tables.set_properties(self.name, noted)


def _progress(properties: dict[str, str]) -> Progress | None:
    stored = json.loads(properties[_PROGRESS]) if _PROGRESS in properties else None
    return Progress(stored["bronze"], stored["version"]) if stored else None


def _from_source(columns: Sequence[str]) -> dict[str, str | Column]:
    return {quoted(name): f"s.{quoted(name)}" for name in columns}


def _dotted(path: Sequence[str]) -> str:
    return ".".join(quoted(part) for part in path)


def _paths(schema: T.DataType, prefix: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """Every column's path, lower-case, as `SchemaChange` spells it."""
    if isinstance(schema, T.ArrayType):
        return _paths(schema.elementType, (*prefix, "element"))
    if not isinstance(schema, T.StructType):
        return set()
    found: set[tuple[str, ...]] = set()
    for column in schema.fields:
        path = (*prefix, column.name.lower())
        found |= {path} | _paths(column.dataType, path)
    return found
