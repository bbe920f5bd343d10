"""Child tables of one collection: after the parent's MERGE, each gets the elements of the keys that changed.

The child stores the version of its parent that it has reached after its MERGE. A crash before that repeats the MERGE,
and a crash between parent and child is noticed by the next run: the child is behind (decision 90).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.errors import ContractError
from strandline.io.delta_log.changed_keys import changed_keys, keys_in
from strandline.io.delta_log.mergeable_table import ONLY_SPARK, MergeableTable
from strandline.io.delta_log.parquet_file import read_batches
from strandline.io.delta_log.plain_protocol import make_plain
from strandline.io.spark import column_functions as F
from strandline.io.spark.races import OvertakenError
from strandline.io.tables.delta_rs_tables import DeltaRsTables, table_errors
from strandline.io.tables.table_store import CHANGE_FEED, TableStore
from strandline.io.telemetry.log_once import log_once
from strandline.jobs.lake_context import PipelineContext
from strandline.jobs.silver.table_names import table_of
from strandline.model.child_table import Child, Elements
from strandline.model.merge_rule import NOTHING, Merged
from strandline.model.namespaces import Namespace
from strandline.model.shape import Shape
from strandline.model.tables import TableName, history_of
from strandline.silver.batch_rows import row_groups
from strandline.silver.child_table import (
    ChildTable,
    ParentVersion,
    definition_property,
    has_same_rows,
    is_defined_as,
    reached_in,
    reached_property,
)
from strandline.silver.column_mapping import mapped_names
from strandline.silver.compatibility import MAPPED, compatibility_in, is_mapped_in
from strandline.silver.elements import exploded, exploded_frame, merge_source, with_gone_frame
from strandline.silver.key_filter import MAX_LISTED_KEYS, Keys, tally
from strandline.silver.owned_table import shape_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from strandline.jobs.context import JobContext


@dataclass(frozen=True)
class ChildRun:
    """Gives one child table the elements of its parent's newest version.

    Args:
        direct: The tables, if this process may merge. None: Spark does.
        of_history: True: the child is the history of a child table, and its parent the history of the documents.
    """

    ctx: PipelineContext
    namespace: Namespace
    child: Child
    direct: DeltaRsTables | None
    of_history: bool = False

    @cached_property
    def parent(self) -> TableName:
        """The table of whose rows the child is made."""
        table = table_of(self.ctx, self.namespace)
        return history_of(table) if self.of_history else table

    def run(self) -> Merged:
        """Merge the elements of the keys that changed. Return the numbers of elements.

        I/O: reads the parent and its change feed; writes the child table if it is missing, one commit with elements,
        one with the version of the parent. Idempotent.

        Raises:
            ContractError: The path leads to no array, the key identifies no element, or the table holds something else.
            OvertakenError: Another process has changed the child. Call again.
        """
        properties = self.ctx.tables.properties(self.parent)
        if (elements := self._elements(properties)) is None or self._is_current(elements):
            return NOTHING
        direct = self._merge_directly(elements, properties)
        return self._merge_by_spark() if direct is None else direct

    def is_behind(self) -> bool:
        """Return True if `run` has something to do, or an error to tell. I/O: reads the logs of both tables."""
        if (look := self.ctx.tables.look(self.parent)) is None:
            return False
        try:
            elements = self._elements(look[1])
        except ContractError:
            return True  # `run` raises it: the other tables are merged
        return elements is not None and not self._is_current(elements)

    def version_with(self, parent_version: int) -> int | None:
        """Return the newest version of the child, if it has the elements of a version of its parent.

        None: it has those of other rows. I/O: reads the logs of both tables.
        """
        look = self.ctx.tables.look(self.child.table)
        elements = self._elements(self.ctx.tables.properties(self.parent))
        if look is None or elements is None or not is_defined_as(look[1], elements):
            return None
        return look[0] if self._has_rows_of(reached_in(look[1]), parent_version) else None

    def _elements(self, properties: dict[str, str]) -> Elements | None:
        """Return the columns of the child, by the *properties* of the parent. None: no document had an element yet."""
        path = f"{self.namespace}: {'.'.join(self.child.path)}"
        try:
            shape = shape_in(properties)
            elements = Elements.of(shape, self.child, compatibility_in(properties), are_versions=self.of_history)
        except ValueError as error:
            raise ContractError(
                f"silver.children, {path}: {error}; the other tables are merged",
                next_step="correct silver.children; or strandline rebuild, if documents have an array there",
            ) from None
        if elements is None:
            keyed = f" with the field {self.child.key}" if self.child.key else ""
            log_once(
                "strandline.silver",
                "silver.children, %s: no document has elements%s so far, so there is no %s yet (strandline schema show"
                " lists the columns)",
                *(path, keyed, str(self.child.table)),
            )
        elif not self.of_history and shape.leaves_out(self.child.path) != self._is_left_out:
            text = "silver.children, %s: keep takes effect with strandline rebuild %s"
            log_once("strandline.silver", text, path, str(self.parent))
        return elements

    @property
    def _is_left_out(self) -> bool:
        """True if the settings leave out the array's column, or one that holds it."""
        path, children = self.child.path, self.ctx.settings.silver.children_of(str(self.namespace))
        return any(not one.keep and one.path == path[: len(one.path)] for one in children)

    def _is_current(self, elements: Elements) -> bool:
        look = self.ctx.tables.look(self.child.table)
        newest = self.ctx.tables.version(self.parent)
        return look is not None and is_defined_as(look[1], elements) and self._has_rows_of(reached_in(look[1]), newest)

    def _has_rows_of(self, reached: ParentVersion | None, version: int) -> bool:
        """Return True if the elements of the parent at *reached* are those of its *version*."""
        if reached is None or not self._goes_on_from(reached):
            return False
        return has_same_rows(self.ctx.tables, self.parent, reached.version, version)

    def _goes_on_from(self, reached: ParentVersion) -> bool:
        """Return True if the parent has gone through the version *reached*."""
        newest = self._version(self.ctx.tables.version(self.parent))
        return reached.is_before(newest, self.ctx.tables, self.parent)

    def _merge_directly(self, elements: Elements, of_parent: Mapping[str, str]) -> Merged | None:
        """Merge in this process. None: Spark must merge. Nothing was changed."""
        if (tables := self.direct) is None or not tables.can_write(self.parent):
            return None
        if self._is_mapped(elements, of_parent):
            return None
        with table_errors(self.child.table):
            try:
                self._open(tables, elements, of_parent)
                if not tables.can_write(self.child.table):
                    return None
                make_plain(tables.folder(self.child.table))
                # The child first: then the parent is at least at the version that the child has reached.
                child = MergeableTable.open(tables.folder(self.child.table), key="_key")
                parent = MergeableTable.open(tables.folder(self.parent), key="_key")
                if child is None or parent is None or not is_defined_as(child.properties, elements):
                    return None
                merged = self._merge_opened(parent, child, elements)
            except ONLY_SPARK:
                return None
            child.tidy()
            tables.set_properties(self.child.table, reached_property(self._version(parent.version)))
            return merged

    def _merge_opened(self, parent: MergeableTable, child: MergeableTable, elements: Elements) -> Merged:
        columns = list(elements.of_parent)
        reached, keys = reached_in(child.properties), None
        if reached is not None and self._goes_on_from(reached):
            keys = changed_keys(parent.folder, reached.version, parent.version, "_key")
        if keys is None and not child.files:
            rows = _all_of(parent, columns, elements)
            return self._certain(child.load(child.write(row_groups(rows))))
        if keys is None:
            both = (keys_in(one.folder, [file.path for file in one.files], "_key") for one in (parent, child))
            keys = pa.chunked_array(chunk for one in both for chunk in one.chunks)
        files = [file for file, _ in child.find_keys(keys)]
        if not files:
            rows = exploded(parent.rows_with(keys, columns), elements)
            return self._certain(child.load(child.write([rows]))) if rows.num_rows else NOTHING
        merged = NOTHING
        for group, is_own in child.shares(files, keys):
            own = keys.filter(is_own)
            rows = child.conformed(exploded(parent.rows_with(own, columns), elements), elements.columns)
            source = merge_source(rows, child.rows_with(own, elements.columns), elements)
            merged += self._certain(child.merge(source, elements.rule(), group))
        return merged

    def _merge_by_spark(self) -> Merged:
        from strandline.io.tables.increments import FeedLost  # imports PySpark

        ctx = self.ctx.with_spark()
        tables, name, properties = ctx.tables, self.child.table, ctx.tables.properties(self.parent)
        if (elements := self._elements(properties)) is None:
            return NOTHING
        current = self._open(tables, elements, properties)
        before, version, reached = tables.version(name), tables.version(self.parent), reached_in(current)
        rows, at = tables.read(self.parent, version=version), self._version(version)
        if not is_defined_as(current, elements):
            return self._replace(ctx, exploded_frame(rows, elements), elements, properties, at)
        earlier, keys = tables.read(name), Keys()
        if reached is not None and self._goes_on_from(reached):
            with suppress(FeedLost):  # then the elements of all keys are compared
                changed, keys = _changed(ctx, self.parent, reached.version, version)
                rows, earlier = (
                    one.where(keys.predicate("_key")).join(changed, "_key", "left_semi") for one in (rows, earlier)
                )
        source = with_gone_frame(exploded_frame(rows, elements), earlier, elements)
        merged = tables.merge(name, source, elements.rule(), among=keys.predicate("t._key"))
        tables.set_properties(name, reached_property(at))
        commits = tables.commits_between(name, before, tables.version(name)) or ()
        if sum(not commit.keeps_rows for commit in commits) > merged.commits:
            tables.set_properties(name, reached_property(reached))
            raise self._overtaken()
        return merged

    def _replace(
        self, ctx: JobContext, rows: DataFrame, elements: Elements, of_parent: dict[str, str], parent: ParentVersion
    ) -> Merged:
        """I/O: one commit replaces the rows and columns of the child; others set its properties."""
        from strandline.io.tables.ddl import schema_of, with_comments  # imports PySpark

        name, comments = self.child.table, {one.name: one.metadata for one in schema_of(elements.ddl).fields}
        rows = with_comments(rows, {column: data.get("comment", "") for column, data in comments.items()})
        # DELTA_BLOCK_COLUMN_MAPPING_AND_CDC_OPERATION forbids to replace mapped columns while the feed is on.
        if self._is_mapped(elements, of_parent):
            ctx.tables.set_properties(name, {CHANGE_FEED: "false", **MAPPED})
        after = {CHANGE_FEED: "true", **definition_property(elements), **reached_property(parent)}
        count = ctx.tables.replace(name, rows, properties=after)
        return Merged(count, 0, 0, commits=1)

    def _open(self, tables: TableStore, elements: Elements, of_parent: Mapping[str, str]) -> dict[str, str]:
        table, source = ChildTable(tables, self.child.table), self.ctx.settings.source.name
        kind, is_mapped = compatibility_in(of_parent), self._is_mapped(elements, of_parent)
        return table.open(self.namespace, self.child, elements, source, kind, is_mapped=is_mapped)

    @staticmethod
    def _is_mapped(elements: Elements, of_parent: Mapping[str, str]) -> bool:
        """Return True if the child needs column mapping, or the parent has it."""
        return is_mapped_in(of_parent) or any(mapped_names(Shape("struct", fields=dict(elements.types))))

    def _version(self, version: int) -> ParentVersion:
        return ParentVersion.of(self.ctx.tables, self.parent, version)

    def _certain(self, merged: Merged | None) -> Merged:
        if merged is None:
            raise self._overtaken()
        return merged

    def _overtaken(self) -> OvertakenError:
        return OvertakenError(f"another process has changed {self.child.table}", next_step="strandline silver")


def _all_of(parent: MergeableTable, columns: list[str], elements: Elements) -> Iterator[pa.Table]:
    """I/O: yields all elements of the parent, a few rows of it at a time."""
    schema = pa.schema([parent.schema.field(name) for name in columns])
    for file in parent.files:
        for batch in read_batches(parent.folder, file.path, schema):
            if (rows := exploded(pa.Table.from_batches([batch]), elements)).num_rows:
                yield rows


def _changed(ctx: JobContext, parent: TableName, after: int, through: int) -> tuple[DataFrame, Keys]:
    """I/O: reads the change feed of the parent. Returns the keys that changed. Raises FeedLost."""
    from strandline.io.tables.increments import feed, read_few, require_readable  # imports PySpark

    changed = feed(ctx.tables, parent, after + 1, through).select("_key").distinct()
    text = f"changes of {parent} from version {after + 1} on"
    if (few := read_few(changed, MAX_LISTED_KEYS, text)) is not None:
        keys = few["_key"].to_pylist()
        return ctx.spark.createDataFrame([(key,) for key in keys], "_key STRING"), tally(["u"] * len(keys), keys).keys()
    require_readable(changed, text)
    ((low, high),) = changed.agg(F.min("_key"), F.max("_key")).collect()
    return changed, Keys(bounds=(low, high))


def children_of(ctx: PipelineContext, namespace: Namespace, direct: DeltaRsTables | None = None) -> list[ChildRun]:
    """Return the runs of the child tables of a collection, and of their histories if the collection has one."""
    children = ctx.settings.silver.children_of(str(namespace))
    runs = [ChildRun(ctx, namespace, child, direct) for child in children]
    if ctx.settings.silver.keeps_history(str(namespace)):
        histories = (replace(child, table=history_of(child.table)) for child in children)
        runs += [ChildRun(ctx, namespace, child, None, of_history=True) for child in histories]
    return runs


def children_of_cut(ctx: PipelineContext, versions: Mapping[str, int]) -> dict[str, int]:
    """Return the versions of the child tables that have the elements of their parents' *versions*.

    A child that has others, because another silver run is at work, is left out. I/O: reads the logs of the tables.
    """
    runs = (run for name in ctx.settings.silver.children for run in children_of(ctx, Namespace.parse(name)))
    parents = ((run, versions.get(str(run.parent))) for run in runs)
    named = {str(run.child.table): run.version_with(at) for run, at in parents if at is not None}
    return {name: version for name, version in named.items() if version is not None}
