"""Collections that a silver run must merge, and the idle tables that maintenance has rewritten."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

from strandline.jobs.context import JobContext
from strandline.jobs.selection import selection_of
from strandline.jobs.silver.bronze_state import BronzeState
from strandline.jobs.silver.cuts import only_maintained
from strandline.jobs.silver.history import tables_of
from strandline.model.namespaces import Namespace
from strandline.silver.progress_index import ProgressIndex


@dataclass(frozen=True)
class RunPlan:
    """The work of one silver run."""

    collections: list[Namespace]
    """Collections to merge, sorted."""
    maintained_versions: dict[str, int]
    """New version of each idle table that only maintenance has changed. A cut must name it: the old files go."""


def plan_run(ctx: JobContext, bronze: BronzeState, wanted: Sequence[str], pool: Executor) -> RunPlan:
    """I/O: reads the version and progress of every idle table.

    A collection is merged if bronze has changes for it, or if its table was dropped or restored to an older version.

    Args:
        ctx: The pipeline.
        bronze: The state of bronze.
        wanted: ``db.collection`` names to which the run is limited; empty: no limit.
        pool: Runs the checks of idle tables in parallel.
    """
    index = bronze.progress_index
    found = bronze.increment.affected_namespaces(
        bronze.current_names, index.own_versions, selection_of(ctx.settings.capture).admits
    )
    idle = [namespace for namespace in index.own_versions if namespace not in found]
    checks = dict(zip(idle, pool.map(lambda namespace: _check_idle(ctx, index, namespace), idle), strict=True))
    found |= {namespace for namespace, check in checks.items() if check.is_behind}
    versions = {table: version for check in checks.values() for table, version in check.maintained_versions.items()}
    return RunPlan(sorted(name for name in found if not wanted or str(name) in wanted), versions)


@dataclass(frozen=True)
class _IdleCheck:
    """Result of checking the tables of one collection without new rows."""

    is_behind: bool = False
    """True if a table was dropped or restored, so that it lacks rows which it had before."""
    maintained_versions: Mapping[str, int] = field(default_factory=dict)


def _check_idle(ctx: JobContext, index: ProgressIndex, namespace: Namespace) -> _IdleCheck:
    tables, known = tables_of(ctx, namespace), index.versions
    present = {table.name: ctx.tables.version(table.name) for table in tables if ctx.tables.exists(table.name)}
    changed = {name: version for name, version in present.items() if version != known.get(str(name))}
    if len(present) == len(tables) and not changed:
        return _IdleCheck()
    if min(index.own_progress(table.progress()) for table in tables) < index.own_versions[namespace]:
        return _IdleCheck(is_behind=True)
    maintained = {
        str(name): version
        for name, version in changed.items()
        if only_maintained(ctx.tables, name, known.get(str(name)), version)
    }
    return _IdleCheck(maintained_versions=maintained)


def versions_of(ctx: JobContext, namespaces: Iterable[Namespace]) -> dict[str, int]:
    """I/O: reads the version of every silver and history table of *namespaces*."""
    tables = (table for namespace in namespaces for table in tables_of(ctx, namespace))
    return {str(table.name): ctx.tables.version(table.name) for table in tables}
