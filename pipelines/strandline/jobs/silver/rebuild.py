"""Rebuild of a silver table, or some of its rows, from bronze: build a shadow table, compare, swap in one commit."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline.control.sources import state_of
from strandline.errors import ConfigurationError, ContractError
from strandline.io.delta_log.commits import FILES_ONLY
from strandline.io.spark.conflicts import OvertakenError
from strandline.io.tables.increments import is_readable
from strandline.io.tables.table_swap import swap
from strandline.io.telemetry.progress import PROGRESS
from strandline.jobs.context import JobContext
from strandline.jobs.silver.bronze_state import BronzeState
from strandline.jobs.silver.collection import CollectionRun
from strandline.jobs.silver.column_changes import record_schema_changes
from strandline.jobs.silver.constrained import ConstrainedTable
from strandline.jobs.silver.named_tables import table_named
from strandline.jobs.silver.shadow_table import new_shadow, require_all_keys
from strandline.jobs.silver.table_names import table_of
from strandline.jobs.table_protocol import lower_protocol
from strandline.model.merge_rule import Merged, MergeRule
from strandline.model.namespaces import Namespace
from strandline.model.position import cluster_time_hex
from strandline.model.table_schemas import CHANGE_OPS, bronze_table
from strandline.model.tables import TableName, literals, quoted
from strandline.model.timestamps import TIME_EXAMPLE, seconds_of
from strandline.settings.silver import SilverSettings
from strandline.silver.compatibility import MAPPED, compatibility_in, is_mapped_in, without_features
from strandline.silver.incarnations import Incarnations
from strandline.silver.latest import in_namespace
from strandline.silver.layout import clustering_in
from strandline.silver.progress import Progress
from strandline.silver.progress_index import ProgressIndex
from strandline.silver.purge_watermark import is_below
from strandline.silver.rebuild_diff import changed_rows, retyped
from strandline.silver.schema.evolution import SchemaChange
from strandline.silver.silver_table import SilverTable

_log = logging.getLogger("strandline.silver")


@dataclass(frozen=True)
class RebuildResult:
    """Result of a rebuild. Rows include tombstones, except tombstones below the purge watermark."""

    table: str
    bronze_version: int
    """Version of bronze up to which both tables were compared."""
    rows: int
    """Rows of the rebuilt table, or of the part that was rebuilt."""
    missing: int
    """Rows that only the rebuilt table has."""
    extra: int
    """Rows that only the existing table has."""
    different: int
    """Rows with the same key and other content."""
    retyped: tuple[tuple[str, str, str], ...] = ()
    """Columns whose type changed: name, type before, type now."""
    swapped: bool = False
    """False for a dry run."""


@dataclass(frozen=True)
class RowFilter:
    """Rows to rebuild. Every row is rebuilt from all its changes."""

    keys: tuple[str, ...] = ()
    """Values of ``_key``; empty: all keys."""
    since: str = ""
    """Position: rows without a change at or above it are left out; empty: no limit."""

    @property
    def is_all(self) -> bool:
        """True if the whole table is rebuilt."""
        return not self.keys and not self.since

    def apply(self, changes: DataFrame) -> DataFrame:
        """Return all bronze rows of the selected keys."""
        if self.is_all:
            return changes
        if self.keys:
            return changes.where(F.col("key").isin(*self.keys))
        touched = changes.where(F.col("position") >= self.since).select("key").distinct()
        return changes.join(touched, "key", "left_semi")


def run_rebuild(
    ctx: JobContext, name: str, *, keys: Sequence[str] = (), since: str | None = None, dry_run: bool = False
) -> RebuildResult:
    """Rebuild a silver table from bronze, as of the version that the table has merged. The source is not read.

    A rebuild of the whole table chooses column types anew: values in `_rescued` move into their columns.

    I/O: reads bronze; writes a shadow table, then one commit to the table. Order of side effects: build the shadow,
    compare, swap, drop the shadow.

    Args:
        ctx: The pipeline.
        name: ``silver.orders``, ``orders``, or the collection as MongoDB has it.
        keys: Rebuild only the rows with these values of ``_key``; empty: all rows.
        since: Rebuild only rows that changed in the source since this time, in ISO 8601; None: all rows.
        dry_run: Compare only. The table is not changed.

    Raises:
        ConfigurationError: The table does not exist, *since* is not a time, or the source is not stopped. A concurrent
            silver run could record rows as merged which the swap then removes.
        OvertakenError: A silver run that was still at work, or another process, changed the table meanwhile.
        ContractError: The rows need columns that the table does not have, or the rebuilt table lacks a key of bronze.

    Effects on failure:
        The table is unchanged, or swapped completely. Calling again is safe.
    """
    table, row_filter = table_named(ctx, name), _row_filter(keys, since)
    if not dry_run:
        _require_stopped(ctx)
    existing, namespace = _existing_table(ctx, table)
    version = ctx.tables.version(table)
    progress_index = ProgressIndex.read(ctx.tables, bronze_table(ctx.settings.source.name))
    through = _merged_through(ctx, progress_index, namespace, existing)
    bronze = BronzeState.read(ctx, ProgressIndex(progress_index.bronze), through)
    with new_shadow(ctx.tables, table) as shadow, PROGRESS.step("rebuild") as step:
        step.item = str(table)
        if not row_filter.is_all:
            shadow.create_empty_copy(existing, str(namespace))
        run = _ShadowRun(ctx, namespace, bronze, shadow, row_filter)
        run.run()
        require_all_keys(ctx.tables.read(shadow.name), run.all_changes(), table)
        _leave_out_refused(ctx, namespace, existing, shadow, records=not dry_run)
        result = _compare(ctx, existing, shadow.name, through.version, row_filter)
        if not dry_run:
            _require_stopped(ctx)
            if row_filter.is_all:
                _require_unchanged(ctx, table, version)
                _replace_table(ctx, table, shadow.name)
            else:
                _replace_part(ctx, run, existing, version, through)
            if result.retyped:
                retypings = [SchemaChange((name,), before, after) for name, before, after in result.retyped]
                record_schema_changes(ctx.tables, table, retypings, through.version)
            result = replace(result, swapped=True)
    return result


@dataclass(frozen=True)
class _ShadowRun(CollectionRun):
    """Silver run that merges the selected rows of bronze, of all versions, into a shadow table."""

    shadow: SilverTable
    row_filter: RowFilter

    @cached_property
    def _name(self) -> TableName:
        return self.shadow.name

    def _changes(self, after: int, incarnations: Incarnations, earlier: Incarnations) -> DataFrame:
        return self.row_filter.apply(super()._changes(after, incarnations, earlier))

    def _merge_directly(self) -> tuple[Merged, int] | None:
        return super()._merge_directly() if self.row_filter.is_all else None

    def all_changes(self) -> DataFrame:
        """Return the selected rows of bronze, whatever progress the shadow table has stored."""
        incarnations = self.shadow.open(str(self.namespace), self.ctx.settings.source.name).incarnations
        rows = self.bronze.rows().where(
            F.col("op").isin(*CHANGE_OPS) & (in_namespace(self.namespace) | incarnations.is_brought())
        )
        return self.row_filter.apply(rows)

    @property
    def _settings(self) -> SilverSettings:
        """Silver settings without the archiving of dropped incarnations: they were archived when they were dropped."""
        settings = super()._settings
        return settings.model_copy(update={"on_drop": "soft_delete"}) if settings.on_drop == "archive" else settings

    def _record(self, _: Sequence[SchemaChange]) -> None:
        """Record nothing: columns of a shadow table are not schema changes of silver."""


def _row_filter(keys: Sequence[str], since: str | None) -> RowFilter:
    seconds = None if since is None else seconds_of(since)
    if since is not None and (seconds is None or keys):
        raise ConfigurationError(
            "--key and --since exclude each other" if keys else f"--since is no ISO 8601 time since 1970: {since!r}",
            next_step="rebuild one after the other" if keys else TIME_EXAMPLE,
        )
    return RowFilter(tuple(keys), "" if seconds is None else cluster_time_hex(min(seconds, 2**32 - 1), 0))


def _require_stopped(ctx: JobContext) -> None:
    source = ctx.settings.source.name
    state = state_of(ctx.tables, source).state
    if state != "stopped":
        raise ConfigurationError(
            f"source {source} is {state}; its tables are rebuilt only while it is stopped, and no silver runs",
            next_step="strandline stop, or --dry-run, which only compares",
        )


def _require_unchanged(ctx: JobContext, table: TableName, version: int) -> None:
    if _changes_after(ctx, table, version):
        raise OvertakenError(
            f"{table} was changed while it was rebuilt (after version {version}), so nothing was replaced",
            next_step=f"wait until no silver run is at work, then strandline rebuild {table}",
        )


def _changes_after(ctx: JobContext, table: TableName, version: int) -> int:
    """I/O: number of commits after *version* that may have changed rows or properties."""
    newest = ctx.tables.version(table)
    commits = ctx.tables.commits_between(table, version, newest) if newest != version else []
    if commits is None:
        return newest - version
    # maintain compacts files; its purge sets a property first, which the swap would take back
    return sum(commit.operation not in FILES_ONLY for commit in commits)


def _existing_table(ctx: JobContext, table: TableName) -> tuple[SilverTable, Namespace]:
    existing = SilverTable(ctx.tables, table)
    namespace = existing.namespace()
    if namespace is None or table_of(ctx, namespace) != table:
        raise ConfigurationError(f"there is no silver table {table.name}", next_step="strandline status lists them")
    return existing, namespace


def _merged_through(
    ctx: JobContext, progress_index: ProgressIndex, namespace: Namespace, existing: SilverTable
) -> Progress:
    """Return the version of bronze that the table has merged.

    If that version can no longer be read, or its commit is no longer in bronze's log, return the newest one. The
    rebuilt table then also has rows that silver has not merged.
    """
    bronze, progress = progress_index.bronze.table, existing.progress()
    reached = progress_index.reached(namespace, progress)
    if progress is None or (reached is None and progress_index.bronze.tells(progress)):
        raise ConfigurationError(
            f"{existing.name} was not built from the rows that {bronze} holds now", next_step="strandline silver"
        )
    if reached is not None and is_readable(ctx.tables, bronze, reached.version):
        return reached
    newest = progress_index.bronze.newest()
    _log.warning(
        "version %d of %s cannot be read any more: %s is built up to version %d",
        (reached or progress).version,
        bronze,
        existing.name,
        newest.version,
    )
    return newest


def _leave_out_refused(
    ctx: JobContext, namespace: Namespace, existing: SilverTable, shadow: SilverTable, *, records: bool
) -> None:
    """Remove the rows that break a constraint of the table from its shadow, which has no constraint.

    I/O: reads the shadow; writes dead letters, and one commit to the shadow.

    Raises:
        ContractError: A constraint names a column that the shadow lacks.
    """
    constraints, rows = existing.constraints(), ctx.tables.read(shadow.name)
    for name, sql in constraints.conditions.items():
        try:
            _ = rows.selectExpr(sql).schema
        except AnalysisException:
            raise ContractError(
                f"the constraint {name} of {existing.name} does not fit the columns of the rebuilt table",
                next_step=f"ALTER TABLE {existing.name} DROP CONSTRAINT {quoted(name)}",
            ) from None
    if constraints.conditions:
        if records:
            ConstrainedTable(ctx, namespace, existing, constraints).record_broken(rows)
        ctx.tables.delete(shadow.name, f"NOT ({constraints.all_met()})")


def _compare(
    ctx: JobContext, table: SilverTable, shadow: TableName, version: int, row_filter: RowFilter
) -> RebuildResult:
    """Compare the two tables without tombstones that may have been purged: bronze still has their events."""
    purge_watermark, existing, rebuilt = table.purge_watermark(), ctx.tables.read(table.name), ctx.tables.read(shadow)
    types = tuple(retyped(existing.schema, rebuilt.schema))
    if row_filter.keys:
        existing = existing.where(F.col("_key").isin(*row_filter.keys))
    elif row_filter.since:
        existing = existing.join(rebuilt.select("_key"), "_key", "left_semi")
    kinds = {
        row["kind"]: row["count"]
        for row in changed_rows(existing, rebuilt, purge_watermark=purge_watermark).groupBy("kind").count().collect()
    }
    counts = {kind: kinds.get(kind, 0) for kind in ("missing", "extra", "different")}
    return RebuildResult(
        str(table.name), version, rebuilt.where(f"NOT ({is_below(purge_watermark)})").count(), retyped=types, **counts
    )


def _replace_table(ctx: JobContext, table: TableName, shadow: TableName) -> None:
    """Replace the table in one commit."""
    properties = without_features(ctx.tables.properties(table)) | ctx.tables.properties(shadow)
    features = MAPPED if compatibility_in(properties) == "portable" and is_mapped_in(properties) else {}
    columns = clustering_in(properties)
    swap(ctx.tables, table, shadow, properties=properties, cluster_by=columns, features=features)
    if compatibility_in(properties) == "portable":
        lower_protocol(ctx, table)


def _replace_part(ctx: JobContext, run: _ShadowRun, existing: SilverTable, version: int, through: Progress) -> None:
    """Replace the rebuilt rows in one commit.

    A silver run may commit between the check and this MERGE, which then takes back its rows of these keys. In that case
    the table's progress is set back, too, and the next silver run merges them again.
    """
    keys, owner = run.row_filter.keys, (str(run.namespace), ctx.settings.source.name)
    if run.shadow.open(*owner).shape != existing.open(*owner).shape:
        raise ContractError(
            f"these rows need other columns than {existing.name} has", next_step="rebuild the whole table"
        )
    _require_unchanged(ctx, existing.name, version)
    rows = ctx.tables.read(run.shadow.name)
    rule = MergeRule(("_key",)).update(rows.columns).insert(rows.columns)
    if keys:
        rule = rule.delete_missing(when=f"t._key IN ({literals(keys)})")
    ctx.tables.merge(existing.name, rows, rule)
    if _changes_after(ctx, existing.name, version) > 1:  # one of them is the MERGE
        existing.set_progress(through, {})
