"""Build the gold nodes that changed, in dependency order. Independent nodes are built in parallel."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial

from strandline.errors import one_line
from strandline.gold.build import Built, build_rows, build_view
from strandline.gold.build_decision import Decision, decide
from strandline.gold.build_plan import pin_inputs
from strandline.gold.graph import Graph, Node
from strandline.gold.pinned_inputs import PinnedInputs
from strandline.gold.results import GoldResult
from strandline.io.tables.delta_rs_tables import DeltaRsTables
from strandline.io.tables.spark_tables import Tables
from strandline.io.tables.table_store import VersionGone
from strandline.io.tables.versions import reading_version
from strandline.io.telemetry.progress import PROGRESS
from strandline.model.tables import TableName

Around = Callable[[Node, Callable[[], Built]], Built]
"""Called with a node and its build. It returns the result of the build, or raises its error."""


def _only_build(_node: Node, build: Callable[[], Built]) -> Built:
    return build()


def publish(
    tables: Tables,
    graph: Graph,
    names: Sequence[str] = (),
    *,
    versions: Mapping[TableName, int] | None = None,
    max_threads: int = 1,
    around: Around = _only_build,
    native: DeltaRsTables | None = None,
) -> list[GoldResult]:
    """Build the gold nodes whose inputs or SQL changed.

    I/O: reads the tables named in the SQL, at the same versions for all nodes; writes one table or view per node.
    Idempotent.

    Args:
        tables: Tables of the lake.
        graph: Result of `strandline.gold.sql_files.load_graph`.
        names: Nodes to build, together with the gold nodes that they read. Empty: all.
        versions: Versions to read. Other tables are read at their newest version.
        max_threads: Maximum nodes built at the same time.
        around: Called for each build, in the thread of the build. Not for a node that needs none.
        native: Tables of a lake that this process reaches without Spark. None: Spark merges all changed keys.

    Returns:
        One result per node, in dependency order. A failed node blocks its descendants only; so does a missing input.

    Raises:
        VersionGone: VACUUM or log retention removed a version that a node reads. The other nodes are built.

    Effects on failure:
        A failed node keeps its last good rows. Calling again is safe.
    """
    order = graph.order(names)
    if not order:
        return []
    pinned = pin_inputs(tables, graph, order, versions or {}, max_threads)
    futures: dict[str, Future[GoldResult]] = {}

    def build(node: Node) -> GoldResult:
        upstream = [futures[name].result() for name in node.gold_references()]
        blocking = next((result for result in upstream if result.blocks), None)
        return _build(pinned, graph, node, around, native) if blocking is None else _blocked(node, blocking)

    # A node waits in its thread for its inputs. No deadlock: its inputs were submitted first, so they start first.
    with (
        PROGRESS.step("gold", "views and tables", len(order)) as step,
        ThreadPoolExecutor(max_threads, thread_name_prefix="strandline-gold") as pool,
    ):
        tracked_build = step.counting(build, lambda node: f"gold.{node.name}")
        for node in order:
            futures[node.name] = pool.submit(copy_context().run, tracked_build, node)
        return [futures[node.name].result() for node in order]


def _blocked(node: Node, by: GoldResult) -> GoldResult:
    root = by.blocked_by or by.name
    return GoldResult(node.name, node.materialized, "skipped", reason=f"blocked by gold.{root}", blocked_by=root)


def _build(
    pinned: PinnedInputs[Tables], graph: Graph, node: Node, around: Around, native: DeltaRsTables | None
) -> GoldResult:
    started = time.monotonic()
    try:
        decision = decide(pinned, graph, node)
        reason = decision.reason
        if decision.action in ("missing", "unchanged"):
            return GoldResult(
                node.name, node.materialized, "skipped" if decision.action == "missing" else "unchanged", reason=reason
            )
        with reading_version(f"what gold.{node.name} reads"):
            built = around(node, partial(_built, pinned, graph, node, decision, native))
    except VersionGone:  # the caller runs again with newer versions
        raise
    except Exception as error:  # noqa: BLE001  # why: the error of one node must not stop the others
        return GoldResult(node.name, node.materialized, "failed", None, one_line(error), time.monotonic() - started)
    seconds = time.monotonic() - started
    return GoldResult(node.name, node.materialized, "built", built.rows, built.how, seconds, engine=built.engine)


def _built(
    pinned: PinnedInputs[Tables], graph: Graph, node: Node, decision: Decision, native: DeltaRsTables | None
) -> Built:
    if decision.action == "view":
        build_view(pinned, graph, node)
        return Built(None, decision.reason)
    return build_rows(pinned, graph, node, decision, native)
