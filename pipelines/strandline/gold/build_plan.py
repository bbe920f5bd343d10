"""Plan of a gold build: the action for each node, and the reason. No Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from strandline.gold.build_decision import Action, decide
from strandline.gold.graph import Graph, Node
from strandline.gold.pinned_inputs import PinnedInputs
from strandline.io.tables.table_store import TableStore
from strandline.model.tables import TableName

_T = TypeVar("_T", bound=TableStore)


@dataclass(frozen=True)
class PlannedBuild:
    """Action that `publish` would take for one node, and the reason."""

    name: str
    materialized: str
    action: Action | Literal["orphaned"]
    reason: str


def plan(tables: TableStore, graph: Graph, names: Sequence[str] = (), *, max_threads: int = 1) -> list[PlannedBuild]:
    """Return the action that `publish` would take for each node, and the reason.

    I/O: reads table properties and histories; writes nothing.
    """
    order = graph.order(names)
    pinned = pin_inputs(tables, graph, order, {}, max_threads)
    planned: list[PlannedBuild] = []
    to_be_built: set[TableName] = set()
    for node in order:
        decision = decide(pinned, graph, node, to_be_built)
        if decision.action in ("full", "incremental"):
            to_be_built.add(node.table)
        planned.append(PlannedBuild(node.name, node.materialized, decision.action, decision.reason))
    return planned


def pin_inputs(
    tables: _T, graph: Graph, order: Sequence[Node], versions: Mapping[TableName, int], max_threads: int
) -> PinnedInputs[_T]:
    """Return the versions of all stored tables that the nodes read. I/O: as `PinnedInputs.take`."""
    return PinnedInputs.take(
        tables, (table for node in order for table in graph.inputs(node.statement)), versions, max_threads=max_threads
    )
