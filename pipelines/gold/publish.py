"""Builds gold in the lake: what changed, in the order of references, independent nodes side by side."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipelines.errors import ConfigurationError, one_line
from pipelines.gold.build import build_rows, build_view
from pipelines.gold.build_decision import Action, decide
from pipelines.gold.graph import Graph, Node, parse
from pipelines.gold.pinned_inputs import PinnedInputs
from pipelines.io.tables import Tables
from pipelines.io.versions import VersionGone, reading_version
from pipelines.model.tables import TableName


@dataclass(frozen=True)
class GoldResult:
    """What became of one node.

    *rows* were written by this run; None for a view (nothing is written) and for what was not built. *reason* says in one line how and why
    it was built, or why not.
    """

    name: str
    materialized: str
    status: Literal["built", "unchanged", "skipped", "failed"]
    rows: int | None = None
    reason: str = ""
    seconds: float = 0.0
    blocked_by: str = ""

    @property
    def blocks(self) -> bool:
        """Whether what reads it cannot be built."""
        return self.status in ("skipped", "failed")


@dataclass(frozen=True)
class Planned:
    """What would be done to one node, and why."""

    name: str
    materialized: str
    action: Action
    reason: str


def load_graph(sql_dir: Path | None) -> Graph:
    """I/O: reads every ``*.sql`` file of *sql_dir*. None: no folder, and so an empty graph.

    Raises:
        ConfigurationError: The folder or a file cannot be read; or whatever `parse` finds.
    """
    if sql_dir is None:
        return parse({})
    try:
        files = {str(file): file.read_text(encoding="utf-8-sig") for file in sql_dir.iterdir() if file.suffix == ".sql"}
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "a file is not UTF-8"
        raise ConfigurationError(
            f"gold's SQL files in {sql_dir} cannot be read: {why}", next_step="correct gold.sql_dir"
        ) from None
    return parse(files)


def publish(
    tables: Tables,
    graph: Graph,
    names: Sequence[str] = (),
    *,
    versions: Mapping[TableName, int] | None = None,
    max_threads: int = 1,
) -> list[GoldResult]:
    """Build the gold nodes whose inputs or SQL changed.

    I/O: reads the tables that the SQL names, all nodes the same versions; writes one table or view per node. Idempotent.

    Args:
        tables: The lake.
        graph: From `load_graph`.
        names: Only these and what they read in gold; empty: all.
        versions: Tables to be read at these versions; others: the newest.
        max_threads: Nodes that are built at the same time.

    Returns:
        One result per node, in dependency order. A node that failed or whose table is missing blocks its descendants and nothing else.

    Raises:
        VersionGone: Delta no longer shows a version that a node reads. The other nodes are built.

    Effects on failure:
        A failed node keeps its last good rows. Calling again is safe.
    """
    order = graph.order(names)
    if not order:
        return []
    pinned = _pinned(tables, graph, order, versions or {}, max_threads)
    futures: dict[str, Future[GoldResult]] = {}

    def build(node: Node) -> GoldResult:
        below = [futures[name].result() for name in node.gold_references()]
        blocking = next((result for result in below if result.blocks), None)
        return _build(pinned, graph, node) if blocking is None else _blocked(node, blocking)

    # A node waits in its thread for those that it reads. They were submitted before it, so the oldest in the pool never waits for long.
    with ThreadPoolExecutor(max_threads, thread_name_prefix="strandline-gold") as pool:
        for node in order:
            futures[node.name] = pool.submit(build, node)
        return [futures[node.name].result() for node in order]


def plan(tables: Tables, graph: Graph, names: Sequence[str] = (), *, max_threads: int = 1) -> list[Planned]:
    """What `publish` would do now, and why. I/O: reads properties and histories only; writes nothing."""
    order = graph.order(names)
    pinned = _pinned(tables, graph, order, {}, max_threads)
    planned: list[Planned] = []
    coming: set[TableName] = set()
    for node in order:
        decision = decide(pinned, graph, node, coming)
        if decision.action in ("full", "incremental"):
            coming.add(node.table)
        planned.append(Planned(node.name, node.materialized, decision.action, decision.reason))
    return planned


def _pinned(
    tables: Tables, graph: Graph, order: Sequence[Node], versions: Mapping[TableName, int], max_threads: int
) -> PinnedInputs:
    return PinnedInputs.take(
        tables, (table for node in order for table in graph.inputs(node.statement)), versions, max_threads=max_threads
    )


def _blocked(node: Node, by: GoldResult) -> GoldResult:
    root = by.blocked_by or by.name
    return GoldResult(node.name, node.materialized, "skipped", reason=f"blocked by gold.{root}", blocked_by=root)


def _build(pinned: PinnedInputs, graph: Graph, node: Node) -> GoldResult:
    started = time.monotonic()
    rows: int | None = None
    try:
        decision = decide(pinned, graph, node)
        reason = decision.reason
        if decision.action in ("missing", "unchanged"):
            return GoldResult(
                node.name, node.materialized, "skipped" if decision.action == "missing" else "unchanged", reason=reason
            )
        with reading_version(f"what gold.{node.name} reads"):
            if decision.action == "view":
                build_view(pinned, graph, node)
            else:
                rows, reason = build_rows(pinned, graph, node, decision)
    except VersionGone:  # another run can choose the newest version; this one cannot
        raise
    except Exception as error:  # noqa: BLE001  # why: whatever is wrong with one node must not stop the others; the reason is reported
        return GoldResult(node.name, node.materialized, "failed", None, one_line(error), time.monotonic() - started)
    return GoldResult(node.name, node.materialized, "built", rows, reason, time.monotonic() - started)
