"""Rebuild of a silver table, or some of its rows, from bronze: build a shadow table, compare, swap in one commit."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from strandline.control.sources import state_of
from strandline.errors import ConfigurationError, ContractError
from strandline.io.delta_log.commits import FILES_ONLY
from strandline.io.spark.races import OvertakenError
from strandline.io.telemetry.progress import PROGRESS
from strandline.jobs.context import JobContext
from strandline.jobs.lake_context import PipelineContext
from strandline.jobs.silver.bronze_state import BronzeState
from strandline.jobs.silver.collection import CollectionRun, SilverResult
from strandline.jobs.silver.column_changes import record_schema_changes
from strandline.jobs.silver.direct_batch import DirectBatch
from strandline.jobs.silver.direct_shadow import DirectShadow
from strandline.jobs.silver.named_tables import table_named
from strandline.jobs.silver.parts import Part, parts_of
from strandline.jobs.silver.shadow_table import Shadow, new_shadow, require_all_keys
from strandline.jobs.silver.spark_shadow import RowFilter, SparkShadow
from strandline.jobs.silver.table_names import table_of
from strandline.model.engines import DELTA_RS, SPARK
from strandline.model.merge_rule import Merged, MergeRule
from strandline.model.namespaces import Namespace
from strandline.model.position import cluster_time_hex
from strandline.model.table_schemas import CHANGE_OPS, bronze_table
from strandline.model.tables import TableName, literals
from strandline.model.timestamps import TIME_EXAMPLE, seconds_of
from strandline.settings.silver import SilverSettings
from strandline.silver.incarnations import Incarnations
from strandline.silver.owned_table import ELEMENTS_OF
from strandline.silver.progress_index import ProgressIndex
from strandline.silver.rebuild_diff import retyped
from strandline.silver.schema.evolution import SchemaChange
from strandline.silver.silver_metadata import SilverMetadata
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
    engine: str = SPARK
    """Engine that made the rows: ``Spark`` or ``delta-rs``."""


def run_rebuild(
    ctx: PipelineContext, name: str, *, keys: Sequence[str] = (), since: str | None = None, dry_run: bool = False
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
    bronze = _merged_bronze(ctx, namespace, existing)
    with new_shadow(ctx.tables, table) as rebuilt, PROGRESS.step("rebuild") as step:
        step.item = str(table)
        run = _ShadowRun(ctx, namespace, bronze, table, rebuilt, row_filter)
        engine = run.run().engine
        shadow = run.filled_shadow(engine)
        require_all_keys(shadow, table)
        shadow.leave_out_refused(records=not dry_run)
        types = tuple(retyped(ctx.tables.column_types(table), ctx.tables.column_types(rebuilt)))
        result = RebuildResult(
            str(table), bronze.through.version, **asdict(shadow.differences()), retyped=types, engine=engine
        )
        if not dry_run:
            _require_stopped(ctx)
            if row_filter.is_all:
                _require_unchanged(ctx, table, version)
                shadow.replace_table()
            else:
                _replace_part(ctx.with_spark(), run, version)
            if types:
                retypings = [SchemaChange((name,), before, after) for name, before, after in types]
                record_schema_changes(ctx.tables, table, retypings, bronze.through.version)
            result = replace(result, swapped=True)
    return result


@dataclass(frozen=True)
class _ShadowRun(CollectionRun):
    """Silver run that merges the selected rows of bronze, of all versions, into a shadow table."""

    table: TableName
    shadow: TableName
    row_filter: RowFilter

    @cached_property
    def _name(self) -> TableName:
        return self.shadow

    def run(self) -> SilverResult:
        if not self.row_filter.is_all:
            self._table.create_empty_copy(SilverTable(self._spark.tables, self.table), str(self.namespace))
        return super().run()

    def _changes(self, part: Part) -> DataFrame:
        return self.row_filter.apply(super()._changes(part))

    def _merge_directly(self) -> tuple[Merged, int] | None:
        return super()._merge_directly() if self.row_filter.is_all else None

    def filled_shadow(self, engine: str) -> Shadow:
        """Return the shadow table after `run`, which the *engine* has filled: it goes on with it, if it can."""
        tables, rows = self.bronze.direct, self.bronze.direct_rows(self.bronze.increment)
        if engine == DELTA_RS and tables is not None and rows is not None:
            for part in self._parts():  # one, as Spark merges more
                batch = DirectBatch(part.collections, rows, -1, self.bronze.exact_updates, part.are_tenants)
                direct = DirectShadow(tables, self.table, self.shadow, batch)
                if direct.is_ready():
                    return direct
        existing = SilverTable(self._spark.tables, self.table)
        return SparkShadow(self._spark, self.namespace, existing, self.shadow, self._all_changes(), self.row_filter)

    def _all_changes(self) -> DataFrame:
        """Return the selected rows of bronze, whatever progress the shadow table has stored."""
        changes = self.bronze.rows().where(F.col("op").isin(*CHANGE_OPS))
        rows = (part.keyed(part.own(changes)) for part in self._parts())
        return self.row_filter.apply(reduce(DataFrame.unionByName, rows, changes.where("false")))

    def _parts(self) -> list[Part]:
        """Return all parts of the table, whatever progress the shadow table has stored."""
        nothing = {} if self.namespace.is_tenant_table else {self.namespace: Incarnations()}
        return parts_of(self.bronze, self.namespace, nothing, None, -1)

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


def _require_stopped(ctx: PipelineContext) -> None:
    source = ctx.settings.source.name
    state = state_of(ctx.tables, source).state
    if state != "stopped":
        raise ConfigurationError(
            f"source {source} is {state}; its tables are rebuilt only while it is stopped, and no silver runs",
            next_step="strandline stop, or --dry-run, which only compares",
        )


def _require_unchanged(ctx: PipelineContext, table: TableName, version: int) -> None:
    if _changes_after(ctx, table, version):
        raise OvertakenError(
            f"{table} was changed while it was rebuilt (after version {version}), so nothing was replaced",
            next_step=f"wait until no silver run is at work, then strandline rebuild {table}",
        )


def _changes_after(ctx: PipelineContext, table: TableName, version: int) -> int:
    """I/O: number of commits after *version* that may have changed rows or properties."""
    newest = ctx.tables.version(table)
    commits = ctx.tables.commits_between(table, version, newest) if newest != version else []
    if commits is None:
        return newest - version
    # maintain compacts files; its purge sets a property first, which the swap would take back
    return sum(commit.operation not in FILES_ONLY for commit in commits)


def _existing_table(ctx: PipelineContext, table: TableName) -> tuple[SilverMetadata, Namespace]:
    existing = SilverMetadata(ctx.tables, table)
    if (owner := existing.owner() or "").startswith(ELEMENTS_OF):
        raise ConfigurationError(
            f"{table} has {owner}: it is made from its parent's rows, and not from bronze",
            next_step="strandline rebuild of the parent, then strandline silver",
        )
    namespace = existing.namespace()
    if namespace is None or table_of(ctx, namespace) != table:
        raise ConfigurationError(f"there is no silver table {table.name}", next_step="strandline status lists them")
    return existing, namespace


def _merged_bronze(ctx: PipelineContext, namespace: Namespace, existing: SilverMetadata) -> BronzeState:
    """Return bronze at the version that the table has merged.

    If that version can no longer be read, or its commit is no longer in bronze's log, it is the newest one. The rebuilt
    table then also has rows that silver has not merged.
    """
    index = ProgressIndex.read(ctx.tables, bronze_table(ctx.settings.source.name))
    progress = existing.progress()
    reached = index.reached(namespace, progress)
    if progress is None or (reached is None and index.bronze.tells(progress)):
        raise ConfigurationError(
            f"{existing.name} was not built from the rows that {index.bronze.table} holds now",
            next_step="strandline silver",
        )
    anew = ProgressIndex(index.bronze)
    if reached is not None and (bronze := BronzeState.at(ctx, anew, reached)).is_readable():
        return bronze
    newest = index.bronze.newest()
    _log.warning(
        "version %d of %s cannot be read any more: %s is built up to version %d",
        (reached or progress).version,
        index.bronze.table,
        existing.name,
        newest.version,
    )
    return BronzeState.at(ctx, anew, newest)


def _replace_part(ctx: JobContext, run: _ShadowRun, version: int) -> None:
    """Replace the rebuilt rows in one commit.

    A silver run may commit between the check and this MERGE, which then takes back its rows of these keys. In that case
    the table's progress is set back, too, and the next silver run merges them again.
    """
    keys, owner = run.row_filter.keys, (str(run.namespace), ctx.settings.source.name)
    existing, shadow = (SilverTable(ctx.tables, name) for name in (run.table, run.shadow))
    if shadow.open(*owner).shape != existing.open(*owner).shape:
        raise ContractError(
            f"these rows need other columns than {existing.name} has", next_step="rebuild the whole table"
        )
    _require_unchanged(ctx, existing.name, version)
    rows = ctx.tables.read(shadow.name)
    rule = MergeRule(("_key",)).update(rows.columns).insert(rows.columns)
    if keys:
        rule = rule.delete_missing(when=f"t._key IN ({literals(keys)})")
    ctx.tables.merge(existing.name, rows, rule)
    if _changes_after(ctx, existing.name, version) > 1:  # one of them is the MERGE
        existing.set_progress(run.bronze.through, {})
