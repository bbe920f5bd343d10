"""Every place in the lake that holds values of documents. The documentation and the tests read this list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline.io.tables.table_store import own_tables
from strandline.jobs.context import JobContext
from strandline.jobs.silver.table_names import holder_of, known_collections, table_of
from strandline.model.namespaces import Namespace
from strandline.model.quarantine import is_quarantine_of, quarantine_of
from strandline.model.table_schemas import CUTS, DEAD_LETTERS, PROOF, QUALITY, RECONCILE, bronze_table
from strandline.model.tables import TableName, history_of, literal
from strandline.model.tenants import key_prefix
from strandline.silver.incarnations import facts_in
from strandline.silver.owned_table import child_tables_in
from strandline.silver.progress_index import ProgressIndex
from strandline.silver.silver_metadata import SilverMetadata

PLACES: Final = (
    ("bronze", "events with their documents, pre-images and JSON columns", "the rows of the document go"),
    ("bronze, other rows", "an `_id` in a resume token, in a snapshot's plan, or in a note of an offset", "replaced"),
    ("silver, and archives of dropped collections", "the document", "the row goes"),
    ("child tables, and their histories", "elements of the document's arrays", "the rows go"),
    ("history (`…_history`)", "every version of the document", "the rows go"),
    ("quarantine (`…_quarantine`)", "the row that failed, as JSON", "the rows go"),
    ("`control.dead_letters`", "the document or event that failed", "the rows go"),
    ("`control.reconcile`", "the `_id` of a document that differed", "the rows go"),
    ("`control.proof`", "an `_id` at which a range begins", "the ranges of the collection go, and are made anew"),
    ("`control.quality`", "values and keys that a check has seen", "emptied for every check of a column"),
    ("Data Docs", "values that a check has seen", "the pages go; the next quality run writes new ones"),
    ("gold tables", "what your SQL makes of silver", "built again from silver"),
    ("`control.cuts`, properties of tables", "an `_id` in a position", "replaced by the time of the position"),
    ("change feeds, older versions, files that no version names", "all of the above", "the files go, see below"),
    ("logs of the tables", "keys in predicates, smallest and largest values in statistics", "the logs go, see below"),
)
"""Places, the values in them, and what an erasure does there. `control.notifications` and log lines hold no value."""


@dataclass(frozen=True)
class KeyedTable:
    """Table whose rows tell the key of their document."""

    name: TableName
    key: str
    """Column with the MERGE key."""
    among: str = ""
    """SQL condition on the rows ``t`` that may be of the documents. Empty: all rows."""


@dataclass(frozen=True)
class Scope:
    """Documents to erase: those with one of the keys in one of the collections that renames connect."""

    ctx: JobContext
    namespace: Namespace
    keys: frozenset[str] = field(repr=False)

    @property
    def bronze(self) -> TableName:
        return bronze_table(self.ctx.settings.source.name)

    @cached_property
    def names(self) -> frozenset[Namespace]:
        """The collection, and every name from which or to which a rename took its documents. I/O: reads properties."""
        tables = self.ctx.tables
        groups = []
        for name in known_collections(self.ctx, ProgressIndex.read(tables, self.bronze)):
            if tables.exists(table := table_of(self.ctx, name)):
                facts = facts_in(tables.properties(table), name)
                groups += [{one, *(arrival.namespace for arrival in its.arrivals)} for one, its in facts.items()]
        names = {self.namespace}
        while joined := {name for group in groups if group & names for name in group} - names:
            names |= joined
        return frozenset(names)

    @cached_property
    def typed_tables(self) -> list[TableName]:
        """Silver tables of the names, with archives, child tables, histories and quarantines. I/O: lists the tables."""
        own = own_tables(self.ctx.tables, "silver")
        silver = {table_of(self.ctx, name) for name in self.names} | {*filter(self._held, own)}
        silver |= {one for one in own for table in silver if one.name.startswith(f"{table.name}_dropped_")}
        children = child_tables_in(self.ctx.tables, self.ctx.settings.source.name)
        parents = {str(holder_of(self.ctx.settings.silver, name)) for name in self.names}
        silver |= {child for child, parent in children.items() if parent in parents}
        tables = silver | {history_of(table) for table in silver}
        properties = self.ctx.tables.properties
        quarantines = {quarantine_of(table): table for table in tables}
        held = {one for one in own if one in quarantines and is_quarantine_of(quarantines[one], properties(one))}
        return sorted(held | {table for table in own if table in tables})

    @cached_property
    def keyed(self) -> list[KeyedTable]:
        """Tables that tell keys, bronze first. Only tables that exist."""
        names = " OR ".join(
            f"(t.db = {literal(name.db)} AND t.collection = {literal(name.collection)})" for name in sorted(self.names)
        )
        control = [table for table in (DEAD_LETTERS, RECONCILE) if self.ctx.tables.exists(table)]
        return [
            KeyedTable(self.bronze, "key", f"({names})"),
            *(KeyedTable(table, "_key") for table in self.typed_tables),
            *(KeyedTable(table, "key", f"({names})") for table in control),
        ]

    @cached_property
    def other_tables(self) -> list[TableName]:
        """Tables that may hold values, and do not tell their keys. I/O: lists gold."""
        control = [table for table in (PROOF, QUALITY, CUTS) if self.ctx.tables.exists(table)]
        return [*own_tables(self.ctx.tables, "gold"), *control]

    def key_rows(self) -> DataFrame:
        """Return the keys, as the column ``erased``: in bronze, and in tenant tables. No key is one of both."""
        keys = {*self.keys, *(key_prefix(name) + key for name in self.names for key in self.keys)}
        return self.ctx.spark.createDataFrame([(key,) for key in sorted(keys)], "erased STRING")

    def _held(self, table: TableName) -> bool:
        """Return True if the table holds one of the names, maybe by earlier settings. I/O: reads its properties."""
        holder = SilverMetadata(self.ctx.tables, table).namespace()
        if holder is None or not holder.is_tenant_table:
            return holder in self.names
        return not self.names.isdisjoint(facts_in(self.ctx.tables.properties(table), holder))

    def bare_key(self, key: str) -> str:
        """Return the key that the document of a row has in bronze."""
        prefixes = (prefix for prefix in map(key_prefix, self.names) if key.startswith(prefix))
        return key.removeprefix(next(prefixes, ""))

    def rows(self, table: KeyedTable) -> DataFrame:
        """Return the rows of the documents in a table. Lazy."""
        rows = self.ctx.tables.read(table.name).alias("t")
        rows = rows.where(table.among) if table.among else rows
        return rows.join(self.key_rows(), F.col(f"t.{table.key}") == F.col("erased"), "left_semi")

    def counts(self) -> Iterator[tuple[TableName, dict[str, int]]]:
        """I/O: yields each keyed table, and the number of its rows by the key in bronze."""
        for table in self.keyed:
            counts = Counter[str]()
            for row in self.rows(table).groupBy(table.key).count().collect():
                counts[self.bare_key(row[0])] += row[1]
            yield table.name, counts

    def versions(self) -> dict[TableName, int]:
        """I/O: returns the newest version of every table that may hold values."""
        names: Iterable[TableName] = (*(table.name for table in self.keyed), *self.other_tables)
        return {name: self.ctx.tables.version(name) for name in names}
