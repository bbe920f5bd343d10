"""Whether a node has to be built, how much of it, and why. What the last build read is remembered by the node's own table."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from pipelines.gold.graph import Graph, Node
from pipelines.gold.pinned_inputs import PinnedInputs, PinnedTable, rows_changed
from pipelines.model.lake_format import STAMP
from pipelines.model.tables import TableName

_SQL, _INPUTS = "strandline.sql_hash", "strandline.inputs"

Action = Literal["view", "full", "incremental", "unchanged", "missing"]


@dataclass(frozen=True)
class Decision:
    """*reason* is for people. *inputs* are what the build reads; *before* what the last one read, of those that the keys come from."""

    action: Action
    reason: str
    inputs: Mapping[TableName, PinnedTable] = field(default_factory=dict)
    before: Mapping[TableName, int] = field(default_factory=dict)


def decide(pinned: PinnedInputs, graph: Graph, node: Node, coming: Collection[TableName] = ()) -> Decision:
    """Compare what *node* reads with what its table says it was built from.

    I/O: reads properties, and of a table that moved on the history since then.

    Args:
        coming: Tables of gold that are going to be built before the node (a plan asks ahead of time).
    """
    names = graph.inputs(node.statement)
    names += [pinned.quarantines[name] for name in names if name in pinned.quarantines]
    found = {name: pinned.snapshot(name) for name in names}
    missing = [str(name) for name, snapshot in found.items() if snapshot is None and name not in coming]
    if missing:
        return Decision("missing", f"{', '.join(missing)} not there yet")
    inputs = {name: snapshot for name, snapshot in found.items() if snapshot is not None}
    if node.materialized == "view":
        return Decision("view", "a view holds no rows", inputs)
    if not pinned.tables.exists(node.table):
        return Decision("full", "first build", inputs)
    properties = pinned.tables.properties(node.table)
    if properties.get(_SQL) != graph.fingerprint(node):
        return Decision("full", "its SQL or header changed", inputs)
    if volatile := graph.volatile(node.statement):
        return Decision("full", f"{volatile[0]} changes by itself", inputs)
    changes = _changes(pinned, json.loads(properties[_INPUTS]), inputs)
    changes = [change for change in changes if change.table not in coming]
    changes += [_Change(name, "is built before it", 0) for name in found if name in coming]
    return _decided(node, pinned, changes, inputs)


def remembered(graph: Graph, node: Node, decision: Decision) -> dict[str, str]:
    """Properties that let the next run decide; they travel with the table, so RESTORE and DROP take them along."""
    inputs = {str(name): [snapshot.id, snapshot.version] for name, snapshot in sorted(decision.inputs.items())}
    known = {_SQL: graph.fingerprint(node), _INPUTS: json.dumps(inputs), **STAMP}
    return {**known, "delta.enableChangeDataFeed": "true"}


@dataclass(frozen=True)
class _Change:
    table: TableName
    how: str
    after: int | None
    """Version after which rows changed; None where that cannot be said."""


def _changes(
    pinned: PinnedInputs, before: Mapping[str, tuple[str, int]], inputs: Mapping[TableName, PinnedTable]
) -> list[_Change]:
    changes = [_Change(_named(name), "is gone", None) for name in before if _named(name) not in inputs]
    for table, now in inputs.items():
        if str(table) not in before:
            changes.append(_Change(table, "is new", -1))
            continue
        id_before, version = before[str(table)]
        if id_before != now.id:
            changes.append(_Change(table, "was made anew", None))
        elif now.version < version:
            changes.append(_Change(table, f"went back from version {version} to {now.version}", None))
        elif now.version > version and rows_changed(pinned.tables, table, version, now.version):
            changes.append(_Change(table, f"changed, version {version} to {now.version}", version))
    return changes


def _named(text: str) -> TableName:
    layer, name = text.split(".", 1)
    return TableName(layer, name)  # type: ignore[arg-type]  # why: it was written from a TableName


def _decided(
    node: Node, pinned: PinnedInputs, changes: list[_Change], inputs: Mapping[TableName, PinnedTable]
) -> Decision:
    if not changes:
        return Decision("unchanged", "nothing that it reads has changed", inputs)
    reason = "; ".join(f"{change.table} {change.how}" for change in changes)
    if node.key_lineage is None:
        return Decision("full", reason, inputs)
    drives = (node.key_lineage.table, pinned.quarantines.get(node.key_lineage.table))
    stranger = next((change for change in changes if change.table not in drives or change.after is None), None)
    if stranger is not None:
        whose = "" if stranger.table in drives else f", and the keys come from {node.key_lineage.table}"
        return Decision("full", f"{stranger.table} {stranger.how}{whose}", inputs)
    return Decision(
        "incremental", reason, inputs, {change.table: change.after for change in changes if change.after is not None}
    )
