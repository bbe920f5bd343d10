"""Collections that a silver run must merge, and the idle tables that maintenance has rewritten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

from strandline.jobs.lake_context import PipelineContext
from strandline.jobs.selection import selection_of
from strandline.jobs.silver.bronze_state import BronzeState
from strandline.jobs.silver.children import children_of
from strandline.jobs.silver.run_cut import only_maintained
from strandline.jobs.silver.table_names import collections_of, holder_of, names_of
from strandline.model.namespaces import Namespace
from strandline.silver.progress import Progress


@dataclass(frozen=True)
class RunPlan:
    """The work of one silver run."""

    collections: list[Namespace]
    """Collections to merge, sorted."""
    maintained_versions: dict[str, int]
    """New version of each idle table that only maintenance has changed. A cut must name it: the old files go."""


def plan_run(ctx: PipelineContext, bronze: BronzeState, names: Sequence[str], pool: Executor) -> RunPlan:
    """I/O: reads the version and progress of every idle table.

    A collection is merged if bronze has changes for it, or if its table is not the one that the last run has left: it
    was dropped, it was restored to an older version, or another run has merged more.

    Args:
        ctx: The pipeline.
        bronze: The state of bronze.
        names: ``db.collection`` names to which the run is limited; empty: no limit. A tenant stands for its table.
        pool: Runs the checks of idle tables in parallel.
    """
    index = bronze.progress_index
    present = [name for holder in index.own for name in collections_of(ctx, holder)]
    changed = bronze.increment.affected_namespaces(
        bronze.renamed_from, present, selection_of(ctx.settings.capture).admits
    )
    affected = {holder_of(ctx.settings.silver, name) for name in changed}
    limits = {holder_of(ctx.settings.silver, Namespace.parse(name)) for name in names}
    idle = [namespace for namespace in index.own if namespace not in affected]
    checks = dict(zip(idle, pool.map(lambda namespace: _check_idle(ctx, bronze, namespace), idle), strict=True))
    affected |= {namespace for namespace, check in checks.items() if check.is_changed}
    versions = {table: version for check in checks.values() for table, version in check.maintained_versions.items()}
    return RunPlan(sorted(name for name in affected if not names or name in limits), versions)


@dataclass(frozen=True)
class _IdleCheck:
    """Result of checking the tables of one collection without new rows."""

    is_changed: bool = False
    """True if a table lacks rows which it had before, or has more, or if a child table lacks changes of its parent."""
    maintained_versions: Mapping[str, int] = field(default_factory=dict)


def _check_idle(ctx: PipelineContext, bronze: BronzeState, namespace: Namespace) -> _IdleCheck:
    index, maintained = bronze.progress_index, {}
    for table in names_of(ctx, namespace):
        look, version = ctx.tables.look(table), index.versions.get(str(table))
        # Its version alone tells nothing: an older copy of its folder may have got as many commits since.
        progress = None if look is None else Progress.stored_in(look[1])
        if look is None or index.own_version(namespace, progress) < index.known_version(namespace):
            return _IdleCheck(is_changed=True)
        if progress != index.own[namespace] and bronze.has_news:
            return _IdleCheck(is_changed=True)  # the next cut must not name a version that nobody has looked at
        if look[0] != version and only_maintained(ctx.tables, table, version, look[0]):
            maintained[str(table)] = look[0]
    if any(child.is_behind() for child in children_of(ctx, namespace)):
        return _IdleCheck(is_changed=True)
    return _IdleCheck(maintained_versions=maintained)
