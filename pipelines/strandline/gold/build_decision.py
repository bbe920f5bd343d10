"""Decision to build a gold node: in full, incrementally or not at all, with the reason.

A gold table stores the versions that its last build read in its own table properties.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from strandline.gold.functions import reason
from strandline.gold.graph import Graph, Node
from strandline.gold.pinned_inputs import PinnedInputs, TableVersion, rows_changed
from strandline.io.tables.table_store import TableStore
from strandline.model.lake_format import is_ours, stamp
from strandline.model.tables import TableName

_SQL_PROPERTY, _INPUTS_PROPERTY = "strandline.sql_hash", "strandline.inputs"

Action = Literal["view", "full", "incremental", "unchanged", "missing"]


@dataclass(frozen=True)
class Decision:
    """Action for one node.

    *reason* is text for people. *inputs* are the tables and versions that the build reads.
    *built_from* is set for an incremental build: the versions that the last build read of the changed tables.
    """

    action: Action
    reason: str
    inputs: Mapping[TableName, TableVersion] = field(default_factory=dict)
    built_from: Mapping[TableName, int] = field(default_factory=dict)


def decide(
    pinned: PinnedInputs[TableStore], graph: Graph, node: Node, to_be_built: Collection[TableName] = ()
) -> Decision:
    """Compare the current input versions of *node* with the versions that its table was built from.

    I/O: reads table properties, and the history of each input that has newer commits; writes nothing.

    Args:
        to_be_built: Gold tables that the same run builds before the node. Only a plan passes them.
    """
    input_names = graph.inputs(node.statement)
    names = [*input_names, *(pinned.quarantines[name] for name in input_names if name in pinned.quarantines)]
    versions = {name: pinned.version_of(name) for name in names}
    missing = [str(name) for name, version in versions.items() if version is None and name not in to_be_built]
    if missing:
        return Decision("missing", f"{', '.join(missing)} not there yet")
    inputs = {name: version for name, version in versions.items() if version is not None}
    if node.materialized == "view":
        was_table = pinned.tables.lake.by_path and pinned.tables.exists(node.table)
        return Decision("view", f"each read runs its query{'; its old table is dropped' if was_table else ''}", inputs)
    if not pinned.tables.exists(node.table):
        return Decision("full", "first build", inputs)
    properties = pinned.tables.properties(node.table)
    if not is_ours(node.table, properties):
        return Decision("full", "a table that Strandline has not made has its name", inputs)
    if properties.get(_SQL_PROPERTY) != graph.fingerprint(node):
        return Decision("full", "its SQL or header changed", inputs)
    if volatile := graph.volatile(node.statement):
        return Decision("full", reason(volatile[0]), inputs)
    changes = _changes(pinned, json.loads(properties[_INPUTS_PROPERTY]), inputs)
    changes = [change for change in changes if change.table not in to_be_built]
    changes += [_Change(name, "is built before it", 0) for name in versions if name in to_be_built]
    return _decision(node, pinned, changes, inputs, input_names)


def build_properties(graph: Graph, node: Node, decision: Decision) -> dict[str, str]:
    """Return the table properties that the next `decide` reads. RESTORE and DROP apply to them as to the rows."""
    inputs = {str(name): [table.id, table.version] for name, table in sorted(decision.inputs.items())}
    return {
        _SQL_PROPERTY: graph.fingerprint(node),
        _INPUTS_PROPERTY: json.dumps(inputs),
        "delta.enableChangeDataFeed": "true",
        **stamp(node.table),
    }


def built_from(properties: Mapping[str, str]) -> dict[TableName, int]:
    """Return the versions from which a gold table with these properties was built, by input. Empty: unknown."""
    inputs = json.loads(properties.get(_INPUTS_PROPERTY, "{}"))
    return {TableName.parse(name): version for name, (_, version) in inputs.items()}


@dataclass(frozen=True)
class _Change:
    """Change of one input since the last build."""

    table: TableName
    description: str
    after: int | None
    """Version after which rows changed. None: unknown, so an incremental build is impossible."""


def _changes(
    pinned: PinnedInputs[TableStore], before: Mapping[str, tuple[str, int]], inputs: Mapping[TableName, TableVersion]
) -> list[_Change]:
    changes = [
        _Change(TableName.parse(name), "is gone", None) for name in before if TableName.parse(name) not in inputs
    ]
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


def _decision(
    node: Node,
    pinned: PinnedInputs[TableStore],
    changes: list[_Change],
    inputs: Mapping[TableName, TableVersion],
    input_names: Collection[TableName],
) -> Decision:
    if not changes:
        return Decision("unchanged", "nothing that it reads has changed", inputs)
    reason = "; ".join(f"{change.table} {change.description}" for change in changes)
    if node.key_lineage is None:
        return Decision("full", reason, inputs)
    quarantine = pinned.quarantines.get(node.key_lineage.table)
    # A query that reads the quarantine itself may use its rows for any key.
    driving_tables = (node.key_lineage.table, None if quarantine in input_names else quarantine)
    unmergeable = next(
        (change for change in changes if change.table not in driving_tables or change.after is None), None
    )
    if unmergeable is not None:
        cause = "" if unmergeable.table in driving_tables else f", and the keys come from {node.key_lineage.table}"
        return Decision("full", f"{unmergeable.table} {unmergeable.description}{cause}", inputs)
    return Decision(
        "incremental", reason, inputs, {change.table: change.after for change in changes if change.after is not None}
    )
