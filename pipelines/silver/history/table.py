"""One table of versions: its MERGE, and the progress that travels with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.model.namespaces import Namespace
from pipelines.model.shape import Shape
from pipelines.model.table_schemas import HISTORY_ACTION, SILVER_HISTORY_DDL
from pipelines.model.tables import literal
from pipelines.silver.history.changes import reaches
from pipelines.silver.incarnations import Ends, Incarnations
from pipelines.silver.schema.evolution import followed
from pipelines.silver.typed_table import Progress, TypedTable, from_source, progress_in, shape_in

_INCARNATIONS, _ENDS = "strandline.incarnations", "strandline.incarnation_ends"
_OWNER: Final = "the history of "  # no database's name holds a blank
_WINDOW: Final = ("_valid_to_position", "_valid_to", "_confirmed")


@dataclass(frozen=True)
class OpenedHistory:
    """What a table of versions knows of itself."""

    shape: Shape
    progress: Progress | None
    incarnations: Incarnations
    ends: Ends


@dataclass(frozen=True)
class HistoryTable(TypedTable):
    """Reads and writes of ``silver.<collection>_history``. Clustered by the end of the versions: what is over is not read again."""

    def open(self, namespace: str, source: str) -> OpenedHistory:
        """I/O: creates the empty table if it is not there. Idempotent.

        Raises:
            ContractError: The table is of something else, such as of a collection of that name.
        """
        found = self.create(
            SILVER_HISTORY_DDL,
            self.owner_of(namespace),
            source,
            cluster_by=("_valid_to_position", "_key"),
            skipping=("_valid_to_position", "_valid_from", "_valid_to"),
        )
        incarnations, ends = Incarnations.from_json(found.get(_INCARNATIONS)), Ends.from_json(found.get(_ENDS))
        return OpenedHistory(shape_in(found), progress_in(found), incarnations, ends)

    @staticmethod
    def owner_of(namespace: str) -> str:
        """What the history of a collection is of."""
        return f"{_OWNER}{namespace}"

    @staticmethod
    def namespace_of(owner: str) -> Namespace:
        """The collection that a table is of, or whose history it is."""
        return Namespace.parse(owner.removeprefix(_OWNER))

    def _next_step_when_shared(self) -> str:
        return "set silver.history_collections, or silver.naming, so that no history has a collection's table name"

    def follow(self, shape: Shape, silver: Shape) -> Shape:
        """I/O: adds and widens columns so that they are those of the silver table; no commit where they are.

        Returns:
            The table's next shape. A column that an older silver table had stays as it was.
        """
        following, changes = followed(shape, silver)
        if changes:
            self.change_schema(following, changes, known=shape)
        return following

    def merge(self, changes: DataFrame, *, since: str) -> int:
        """I/O: one commit that makes *changes*; idempotent.

        Args:
            changes: As `history_changes` returns them; unique by ``_key`` and ``_position``.
            since: No version that ended before this position is among them; empty: any may be.

        Returns:
            How many versions were added, changed or removed.

        Raises:
            ContractError: As `require`.
        """
        columns = [name for name in changes.columns if name != HISTORY_ACTION]
        self.require(columns)
        same_version, can_change = (
            "t._key <=> s._key AND t._position = s._position",
            reaches("t._valid_to_position", literal(since)),
        )
        action = f"s.{HISTORY_ACTION}"
        merge = self.tables.merge(self.name, changes, f"{same_version} AND {can_change}")
        merge = merge.delete(when=f"{action} = 'remove'").update(from_source(_WINDOW), when=f"{action} = 'window'")
        merge = merge.update(from_source(columns)).insert(from_source(columns), when=f"{action} = 'write'")
        return merge.execute().rows

    def since(self, position: str) -> DataFrame:
        """I/O: the versions in force at *position* or later; files of others are skipped. Empty: all."""
        return self.tables.read(self.name).where(reaches("_valid_to_position", literal(position)))

    def over(self, ends: Ends) -> DataFrame:
        """I/O: the versions that were in force where their life ended (``end``)."""
        ending = self.tables.read(self.name).withColumn("end", ends.column())
        return ending.where(F.coalesce(F.col("_valid_to_position") > F.col("end"), F.col("end").isNotNull()))

    def advance(self, progress: Progress, incarnations: Incarnations, ends: Ends) -> None:
        """I/O: one commit that notes progress and ends. After the MERGE: a crash between the two only repeats a MERGE."""
        self.note_progress(progress, {_INCARNATIONS: incarnations.to_json(), _ENDS: ends.to_json()})
