"""A silver table, or some of its keys, built anew from bronze alone, compared with what is there, and swapped in one commit."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.control.sources import state_of
from pipelines.errors import ConfigurationError, ContractError
from pipelines.io.increments import is_readable
from pipelines.io.table_swap import swap
from pipelines.jobs.context import JobContext
from pipelines.jobs.offset_target import seconds_of
from pipelines.jobs.silver.bronze_range import BronzeRange, updates_of
from pipelines.jobs.silver.collection import CollectionRun, note_schema_changes
from pipelines.jobs.silver.shadow_table import new_shadow, require_all_keys
from pipelines.jobs.silver.table_names import table_of
from pipelines.model.namespaces import Namespace
from pipelines.model.position import cluster_time_hex
from pipelines.model.table_schemas import CHANGE_OPS, bronze_table
from pipelines.model.tables import TableName, literals
from pipelines.model.timestamps import TIME_EXAMPLE
from pipelines.settings.silver import SilverSettings
from pipelines.silver.bronze_increment import BronzeIncrement
from pipelines.silver.incarnations import Incarnations
from pipelines.silver.latest import in_namespace
from pipelines.silver.progress_index import ProgressIndex
from pipelines.silver.purge_watermark import is_below
from pipelines.silver.rebuild_diff import changed_rows, retyped
from pipelines.silver.schema.evolution import SchemaChange
from pipelines.silver.silver_table import CLUSTERED_BY, SilverTable
from pipelines.silver.typed_table import Progress

_log = logging.getLogger("strandline.silver")


@dataclass(frozen=True)
class Rebuilt:
    """What a rebuild found. Counts are of rows, tombstones included, but for those that may be purged."""

    table: str
    bronze_version: int
    """Everything up to here, and nothing later, is in both versions of the table."""
    rows: int
    """Of the table, or of the part of it, as bronze has them."""
    missing: int
    """Rows that the table lacked."""
    extra: int
    """Rows of which bronze knows nothing."""
    different: int
    retyped: tuple[tuple[str, str, str], ...] = ()
    """Columns whose type is another one now: name, before, now."""
    swapped: bool = False


@dataclass(frozen=True)
class Part:
    """Some rows of a table: those with these *keys*, or those that changed *since* a position. Each is built of all its changes."""

    keys: tuple[str, ...] = ()
    since: str = ""

    @property
    def is_all(self) -> bool:
        return not self.keys and not self.since

    def of(self, changes: DataFrame) -> DataFrame:
        """All bronze rows of these keys."""
        if self.is_all:
            return changes
        if self.keys:
            return changes.where(F.col("key").isin(*self.keys))
        touched = changes.where(F.col("position") >= self.since).select("key").distinct()
        return changes.join(touched, "key", "left_semi")


def run_rebuild(
    ctx: JobContext, name: str, *, keys: Sequence[str] = (), since: str | None = None, dry_run: bool = False
) -> Rebuilt:
    """I/O: bronze, as of the version to which the table is complete → a shadow table → compared → one commit to the table. The source is
    not read. Order: shadow, comparison, swap, the shadow's end.

    A column whose values were at odds with its type (`_rescued`) becomes what all values together ask for; not with *keys* or *since*.

    Args:
        name: ``silver.orders``, or ``orders``.
        keys: Only these rows, by ``_key``.
        since: Only rows that changed in the source since that time, in ISO 8601.
        dry_run: Compare, and leave the table as it is.

    Raises:
        ConfigurationError: There is no such table, *since* is no time, or the source is not stopped: a silver that runs beside could note
            as merged what the swap has taken back.
        ContractError: The rows need columns that the table does not have; or the rebuilt table lacks a key that bronze has.

    Effects on failure:
        The table is as it was, or swapped whole. Calling again is safe.
    """
    table, part = TableName("silver", name.removeprefix("silver.")), _part(keys, since)
    if not dry_run:
        _require_stopped(ctx)
    present, namespace = _present(ctx, table)
    version, bronze_id = _complete_through(ctx, namespace, present)
    bronze = bronze_table(ctx.settings.source.name)
    increment = BronzeIncrement.read(ctx.tables, bronze, -1, version)
    of_bronze = BronzeRange(
        ctx.tables, bronze, ProgressIndex(bronze_id, {}, -1), Progress(bronze_id, version), increment, updates_of(ctx)
    )
    with new_shadow(ctx.tables, table) as shadow:
        if not part.is_all:
            shadow.create_empty_copy(present, str(namespace))
        run = _ShadowRun(ctx, namespace, of_bronze, shadow, part)
        run.run()
        require_all_keys(ctx.tables.read(shadow.name), run.all_changes(), table)
        result = _compared(ctx, present, shadow.name, version, part)
        if not dry_run:
            _require_stopped(ctx)
            _put_in_place(ctx, present, shadow, namespace, part)
            if result.retyped:
                retypings = [SchemaChange((name,), before, after) for name, before, after in result.retyped]
                note_schema_changes(ctx, table, retypings, version)
            result = replace(result, swapped=True)
    return result


@dataclass(frozen=True)
class _ShadowRun(CollectionRun):
    """What a silver run does to a collection's table, done to another table, with all of bronze as its news."""

    shadow: SilverTable
    part: Part

    @cached_property
    def _table(self) -> SilverTable:
        return self.shadow

    def _changes(self, after: int, lives: Incarnations, known: Incarnations) -> DataFrame:
        return self.part.of(super()._changes(after, lives, known))

    def all_changes(self) -> DataFrame:
        """All rows of bronze that the finished shadow is made of, read without regard to the shadow's progress."""
        lives = self.shadow.open(str(self.namespace), self.ctx.settings.source.name).incarnations
        rows = self.range.rows().where(
            F.col("op").isin(*CHANGE_OPS) & (in_namespace(self.namespace) | lives.precedes_rename())
        )
        return self.part.of(rows)

    @property
    def _settings(self) -> SilverSettings:
        """Lives that ended were archived when they did; now they only end."""
        settings = super()._settings
        return settings.model_copy(update={"on_drop": "soft_delete"}) if settings.on_drop == "archive" else settings

    def _note(self, changes: Sequence[SchemaChange]) -> None:  # noqa: ARG002  # why: the shadow's own columns are nobody's news
        return


def _part(keys: Sequence[str], since: str | None) -> Part:
    seconds = None if since is None else seconds_of(since)
    if since is not None and (seconds is None or keys):
        raise ConfigurationError(
            "--key and --since exclude each other" if keys else f"--since is no ISO 8601 time since 1970: {since!r}",
            next_step="rebuild one after the other" if keys else TIME_EXAMPLE,
        )
    return Part(tuple(keys), "" if seconds is None else cluster_time_hex(min(seconds, 2**32 - 1), 0))


def _require_stopped(ctx: JobContext) -> None:
    source = ctx.settings.source.name
    state = state_of(ctx.tables, source).state
    if state != "stopped":
        raise ConfigurationError(
            f"source {source} is {state}; its tables are rebuilt only while it is stopped, and no silver runs",
            next_step="strandline stop, or --dry-run, which only compares",
        )


def _present(ctx: JobContext, table: TableName) -> tuple[SilverTable, Namespace]:
    present = SilverTable(ctx.tables, table)
    namespace = present.namespace()
    if namespace is None or table_of(ctx, namespace) != table:
        raise ConfigurationError(f"there is no silver table {table.name}", next_step="strandline status lists them")
    return present, namespace


def _complete_through(ctx: JobContext, namespace: Namespace, present: SilverTable) -> tuple[int, str]:
    """The version of bronze to which the table is complete, and bronze's id.

    The newest version where that one cannot be read any more: the rebuilt table then has what silver has not merged, too.
    """
    bronze = bronze_table(ctx.settings.source.name)
    bronze_id = ctx.tables.id(bronze)
    progress_index = ProgressIndex.read(ctx.tables, bronze_id)
    version = progress_index.reached_version(namespace, present.progress())
    if version < 0:
        raise ConfigurationError(f"{present.name} was not built from this bronze", next_step="strandline silver")
    if not is_readable(ctx.tables, bronze, version):
        newest = ctx.tables.version(bronze)
        _log.warning(
            "version %d of %s cannot be read any more: %s is built up to version %d",
            version,
            bronze,
            present.name,
            newest,
        )
        version = newest
    return version, bronze_id


def _compared(ctx: JobContext, table: SilverTable, shadow: TableName, version: int, part: Part) -> Rebuilt:
    """Without the tombstones that may have been purged; bronze still knows them."""
    purge_watermark, present, rebuilt = table.purge_watermark(), ctx.tables.read(table.name), ctx.tables.read(shadow)
    types = tuple(retyped(present.schema, rebuilt.schema))
    if part.keys:
        present = present.where(F.col("_key").isin(*part.keys))
    elif part.since:
        present = present.join(rebuilt.select("_key"), "_key", "left_semi")
    kinds = {
        row["kind"]: row["count"]
        for row in changed_rows(present, rebuilt, purge_watermark=purge_watermark).groupBy("kind").count().collect()
    }
    counts = {kind: kinds.get(kind, 0) for kind in ("missing", "extra", "different")}
    return Rebuilt(
        str(table.name), version, rebuilt.where(f"NOT ({is_below(purge_watermark)})").count(), retyped=types, **counts
    )


def _put_in_place(ctx: JobContext, present: SilverTable, shadow: SilverTable, namespace: Namespace, part: Part) -> None:
    """One commit."""
    if part.is_all:
        properties = ctx.tables.properties(present.name) | ctx.tables.properties(shadow.name)
        swap(ctx.tables, present.name, shadow.name, properties=properties, cluster_by=CLUSTERED_BY)
        return
    owner = str(namespace), ctx.settings.source.name
    if shadow.open(*owner).shape != present.open(*owner).shape:
        raise ContractError(
            f"these rows need other columns than {present.name} has", next_step="rebuild the whole table"
        )
    merge = ctx.tables.merge(present.name, ctx.tables.read(shadow.name), "t._key <=> s._key")
    merge = merge.update_all().insert_all()
    (merge.delete_unmatched(when=f"t._key IN ({literals(part.keys)})") if part.keys else merge).execute()
