"""Parts of the work on one silver table: collections whose new rows are merged together (decision 91).

A table of one collection has one part. In a tenant table, the tenants with nothing but changes are one part, and each
tenant with drops, renames or a gap of its own is another one: the rules of a name's lives apply to one name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.io.spark import column_functions as F
from strandline.jobs.selection import selection_of
from strandline.jobs.silver.bronze_state import BronzeState, sweeps_of
from strandline.jobs.silver.table_names import holder_of
from strandline.model.gap import Gap
from strandline.model.namespaces import Namespace
from strandline.model.table_schemas import CHANGE_OPS
from strandline.model.tables import TableName, literal
from strandline.model.tenants import TENANT_COLUMNS, TENANT_KEY, key_prefix
from strandline.silver.bronze_increment import BronzeIncrement
from strandline.silver.incarnations import Facts, Incarnations
from strandline.silver.latest import in_namespace
from strandline.silver.progress import Progress
from strandline.silver.sweep import Sweep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from strandline.io.tables.spark_tables import Tables


@dataclass(frozen=True)
class Part:
    """Collections of a silver table whose new rows are merged together."""

    bronze: BronzeState
    collections: tuple[Namespace, ...]
    after: int
    """Version of bronze above which the rows are read."""
    increment: BronzeIncrement
    earlier: Incarnations
    incarnations: Incarnations
    """With the facts of the increment. Those of several collections have no lives but one each: they are empty."""
    facts: Facts
    """Facts to store, by collection."""
    are_tenants: bool

    @property
    def is_plain(self) -> bool:
        """True if the part has changes of documents alone: no drop, no rename."""
        return not self.incarnations.lives.boundaries and not self.incarnations.arrivals

    @property
    def among(self) -> str:
        """SQL: true for the rows of the one collection of this part."""
        return self.rows_of(self.collections[0])

    def gaps(self) -> tuple[Gap, ...]:
        """Gaps across which no patch may be folded: the same for all collections. I/O: see `BronzeState.gaps_of`."""
        return self.bronze.gaps_of(self.collections[0])

    def changes(self) -> DataFrame:
        """Return the new bronze rows of the collections, with the ``key`` that they have in the table.

        They include rows captured under an earlier name. All rows that a rename in the increment brought are returned.
        They are placed right after the rename.
        """
        rows = self.own(self.bronze.rows(after=self.after))
        if brought := self.incarnations.new_arrivals(self.earlier):
            is_change = F.col("op").isin(*CHANGE_OPS)
            rows = rows.unionByName(self.bronze.rows().where(is_change & self.incarnations.is_brought(brought)))
        return self.keyed(self.incarnations.with_rename_positions(rows))

    def sweeps(self, tables: Tables, table: TableName) -> Iterator[tuple[Sweep, DataFrame, str]]:
        """Yield each sweep of the part, the keys that its snapshot read, and SQL for the rows of its collection.

        I/O: for several collections, reads which of them have live rows that a sweep may find gone.
        """
        by_collection = {name: self.sweeps_of(name) for name in self.collections}
        newest = max((sweep.position for sweeps in by_collection.values() for sweep in sweeps), default="")
        if newest and len(self.collections) > 1:
            below = tables.read(table).where((F.col("_position") < newest) & ~F.col("_deleted"))
            present = below.selectExpr(*(f"{TENANT_COLUMNS[name]} AS {name}" for name in Namespace._fields)).distinct()
            by_collection = {name: by_collection.get(name, []) for name in map(_namespace, present.collect())}
        for collection, sweeps in by_collection.items():
            for sweep in sweeps:
                read_keys = self.keyed(sweep.read_keys(tables, self.bronze.table), collection)
                yield sweep, read_keys, self.rows_of(collection)

    def sweeps_of(self, collection: Namespace) -> list[Sweep]:
        """Return the sweeps of one collection."""
        return list(sweeps_of(self.bronze.ctx, collection, self.increment, self.after))

    def rows_of(self, collection: Namespace) -> str:
        """Return SQL: true for the rows of one collection."""
        return f"startswith(_key, {literal(key_prefix(collection))})" if self.are_tenants else "true"

    def own(self, rows: DataFrame) -> DataFrame:
        """Return the bronze *rows* of the collections, and those that renames brought."""
        return rows.where(in_namespace(*self.collections) | self.incarnations.is_brought())

    def keyed(self, rows: DataFrame, collection: Namespace | None = None) -> DataFrame:
        """Return bronze *rows* with the ``key`` that they have in the table.

        Args:
            collection: The collection of all rows. None: each row names its own.
        """
        if not self.are_tenants:
            return rows
        one = collection or (self.collections[0] if len(self.collections) == 1 else None)
        if one is None:
            return rows.withColumn("key", F.expr(TENANT_KEY))
        return rows.withColumn("key", F.expr(f"concat({literal(key_prefix(one))}, coalesce(key, ''))"))


def parts_of(bronze: BronzeState, holder: Namespace, facts: Facts, progress: Progress | None, after: int) -> list[Part]:
    """Return the parts of the work on a silver or history table. None for a tenant table without news.

    I/O: reads bronze, see `BronzeState.increment_for` and `BronzeState.learned`.

    Args:
        holder: The collection or the tenant table.
        facts: Facts that the table has stored.
        progress: Progress that the table has stored.
        after: Version of bronze up to which the table is complete, by the progress index.
    """
    after, increment = bronze.increment_for(holder, progress, after)
    if not holder.is_tenant_table:
        return [_part(bronze, holder, facts[holder], after, increment, are_tenants=False)]
    whole, lasting = list[Part](), list[Part]()
    with_gap = {gap.collection for gap in bronze.all_gaps} if "patch" in bronze.updates else set()
    for tenant in affected_tenants(bronze, increment, holder, list(facts)):
        is_late = tenant not in facts and after >= 0 and tenant in bronze.progress_index.ended_names
        since, news = (-1, bronze.increment_after(-1)) if is_late else (after, increment)
        part = _part(bronze, tenant, facts.get(tenant, Incarnations()), since, news, are_tenants=True)
        is_simple = part.is_plain and not is_late and str(tenant) not in with_gap
        (whole if is_simple else lasting).append(part)
    return [*_joined(whole), *lasting]


def affected_tenants(
    bronze: BronzeState, increment: BronzeIncrement, holder: Namespace, present: Sequence[Namespace]
) -> list[Namespace]:
    """Return the tenants whose rows the increment changes. *present*: tenants that the table has. Sorted."""
    settings = bronze.ctx.settings
    admits = selection_of(settings.capture).admits
    affected = increment.affected_namespaces(bronze.renamed_from, present, admits)
    return sorted(name for name in affected if holder_of(settings.silver, name) == holder)


def _part(
    bronze: BronzeState,
    collection: Namespace,
    facts: Incarnations,
    after: int,
    increment: BronzeIncrement,
    *,
    are_tenants: bool,
) -> Part:
    settings = bronze.ctx.settings.silver
    earlier = facts.under(drops=settings.ends_drops, renames=settings.ends_renames)
    learned = bronze.learned(earlier, collection, increment)
    return Part(bronze, (collection,), after, increment, earlier, learned, {collection: learned}, are_tenants)


def _joined(parts: Sequence[Part]) -> list[Part]:
    """Return one part of all the collections of plain *parts*."""
    if len(parts) < 2:
        return list(parts)
    first, nothing = parts[0], Incarnations()
    collections = tuple(name for part in parts for name in part.collections)
    facts = {name: facts for part in parts for name, facts in part.facts.items()}
    return [Part(first.bronze, collections, first.after, first.increment, nothing, nothing, facts, are_tenants=True)]


def _namespace(row: Row) -> Namespace:
    return Namespace(row["db"], row["collection"])
