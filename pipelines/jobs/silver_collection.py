"""One collection's share of a silver run: what is new in bronze, merged into its table."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.io.tables import schema_of
from pipelines.jobs.context import JobContext
from pipelines.jobs.dead_letters import note_poison
from pipelines.jobs.selection import selection_of
from pipelines.model.columns import CHANGE_OPS, SCHEMA_CHANGES, SCHEMA_CHANGES_DDL
from pipelines.model.gap import gaps_of
from pipelines.model.namespaces import Namespace
from pipelines.model.tables import TableName, safe_name
from pipelines.settings import SilverSettings
from pipelines.silver.incarnations import Incarnations
from pipelines.silver.latest import READS, latest_per_key, without_deleted_values
from pipelines.silver.ledger import Ledger
from pipelines.silver.news import News
from pipelines.silver.patches import folded_per_key, is_patch
from pipelines.silver.rows import census_of, census_of_state, typed_rows
from pipelines.silver.schema import Guards, SchemaChange, evolve
from pipelines.silver.shape import Shape
from pipelines.silver.writer import Merged, Progress, SilverTable

_log = logging.getLogger("strandline.silver")


@dataclass(frozen=True)
class SilverResult:
    """What one run did to one table."""

    table: TableName
    namespace: Namespace
    inserted: int
    updated: int
    schema_changes: int
    seconds: float


@dataclass(frozen=True)
class BronzeRange:
    """What of bronze one run over all collections looks at."""

    bronze: TableName
    ledger: Ledger
    through: Progress
    news: News


def table_of(namespace: Namespace, settings: SilverSettings) -> TableName:
    """The silver table of a collection."""
    return TableName("silver", safe_name(namespace.collection) if settings.naming == "collection" else safe_name(*namespace))


@dataclass(frozen=True)
class CollectionRun:
    """Brings one collection's table up to the end of a range of bronze."""

    ctx: JobContext
    namespace: Namespace
    range: BronzeRange

    @property
    def _settings(self) -> SilverSettings:
        return self.ctx.settings.silver

    @property
    def _exact_updates(self) -> bool:
        return self.ctx.settings.capture.full_update_type == "post_image"

    @cached_property
    def _table(self) -> SilverTable:
        return SilverTable(self.ctx.tables, table_of(self.namespace, self._settings))

    def run(self) -> SilverResult:
        """I/O: read → MERGE → drops and renames → sweeps → progress, in this order of side effects."""
        started, table, settings = time.monotonic(), self._table, self._settings
        opened, through = table.open(str(self.namespace)), self.range.through
        after = self.range.ledger.effective(self.namespace, self.range.ledger.own_progress(opened.progress))
        if after >= through.version:  # an earlier run over this collection alone has been here
            return SilverResult(table.name, self.namespace, 0, 0, 0, time.monotonic() - started)
        news = self.range.news
        if after < news.after:  # the table was dropped or restored: it has more to catch up with than the others
            news = News.read(self.ctx.tables, self.range.bronze, after, through.version)
        shape, known = opened.shape, opened.incarnations
        lives = known.after(news.events, self.namespace, drops=settings.on_drop != "keep", renames=settings.on_rename == "follow")
        changes = lives.stamped(self._changes(after, lives, known))
        if settings.on_drop == "archive":
            shape = self._archive(news, shape, known, changes)
        _, merged, schema_changes = self._merge(shape, changes, lives)
        if lives.newer_than(known).ended:
            table.retire(lives, deletes=settings.deletes)
        swept = self._sweep(news, after)
        table.advance(through, lives)
        return SilverResult(table.name, self.namespace, merged.inserted, merged.updated + swept, schema_changes, time.monotonic() - started)

    def _changes(self, after: int, lives: Incarnations, known: Incarnations) -> DataFrame:
        """New rows of the collection, under whatever name they came; of one that came by a rename just now, all there ever were."""
        tables, bronze, through = self.ctx.tables, self.range.bronze, self.range.through.version
        is_its_own = (F.col("db") == self.namespace.db) & (F.col("collection") == self.namespace.collection)
        changes = tables.changes(bronze, after + 1, through).where(is_its_own | lives.brings()).select(*READS)
        arrived = Incarnations(came=lives.newer_than(known).came)
        if not arrived.came:
            return changes
        earlier = tables.read(bronze, version=through).where(F.col("op").isin(*CHANGE_OPS) & arrived.brings())
        return changes.unionByName(earlier.withColumn("_commit_version", F.lit(through).cast("BIGINT")).select(*READS))

    def _archive(self, news: News, shape: Shape, known: Incarnations, changes: DataFrame) -> Shape:
        """Every drop by itself, in order: what it ends must be whole in the table before the next life replaces it."""
        for event in sorted(news.events, key=lambda event: event.position):
            ended = Incarnations().after([event], self.namespace, drops=True, renames=False)
            if not ended.newer_than(known).ended:
                continue
            shape, _, _ = self._merge(shape, changes.where(F.col("position") < event.position), known)
            for archive in self._table.archive(ended):
                _log.info("%s was dropped: its rows are kept in %s", self.namespace, archive)
            self._table.retire(ended, deletes=self._settings.deletes)
        return shape

    def _merge(self, shape: Shape, changes: DataFrame, lives: Incarnations) -> tuple[Shape, Merged, int]:
        """Census → schema → latest → typed → MERGE. Returns the table's next shape, and how many columns were added or widened for it."""
        settings, table = self._settings, self._table
        census = census_of(changes, max_depth=settings.max_depth)
        if self._folds(changes):
            gaps = gaps_of(self.ctx.tables.properties(self.range.bronze))
            state = folded_per_key(changes, self.ctx.tables.read(table.name), exact_updates=self._exact_updates, gaps=gaps)
            census.merge(census_of_state(state, max_depth=settings.max_depth))
        else:
            state = latest_per_key(changes)
        if census.holds_poison:
            note_poison(self.ctx, self.namespace, state)
        shape, schema_changes = evolve(shape, census, Guards(settings.max_columns, settings.max_depth))
        if schema_changes:
            table.change_schema(shape, schema_changes)
            self._note(schema_changes)
        state = lives.retired(state)
        if settings.deletes == "hard":
            state = without_deleted_values(state)
        merged = table.merge(typed_rows(state, shape, exact_updates=self._exact_updates), deletes=settings.deletes)
        return shape, merged, len(schema_changes)

    def _folds(self, changes: DataFrame) -> bool:
        """Whether the table holds patches or gets its first ones. Where updates are looked up there are none: a document that was gone by
        then is followed by its delete."""
        if self._table.folds():
            return True
        capture = self.ctx.settings.capture
        looked_up = "update_full" in capture.mode and capture.full_update_type == "lookup"
        if looked_up or changes.where(is_patch()).isEmpty():
            return False
        self._table.note_folding()
        return True

    def _sweep(self, news: News, after: int) -> int:
        """Retire what complete snapshots no longer met; a collection that the filters have come to leave out stays as it was, and one that
        is gone as `on_drop` says."""
        if not selection_of(self.ctx.settings.capture).admits(*self.namespace):
            return 0
        swept = 0
        for snapshot in news.completed_after(after):
            position = snapshot.position_for(self.namespace)
            keeps = self._settings.on_drop == "keep" and self.namespace not in snapshot.planned
            if position is not None and not keeps:
                met = snapshot.met(self.ctx.tables, self.range.bronze, self.namespace)
                swept += self._table.sweep(met, position, deletes=self._settings.deletes)
        return swept

    def _note(self, changes: Sequence[SchemaChange]) -> None:
        now, version = datetime.now(UTC), self.range.through.version
        rows = [(now, str(self._table.name), ".".join(change.path), change.before, change.after, version) for change in changes]
        self.ctx.tables.append(SCHEMA_CHANGES, self.ctx.spark.createDataFrame(rows, schema_of(SCHEMA_CHANGES_DDL)))
