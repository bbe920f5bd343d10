"""Dependency graph of the gold SQL files: the tables that each file reads, and the build order."""

from __future__ import annotations

import hashlib
import heapq
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from strandline.errors import ConfigurationError
from strandline.gold.header import Header, Materialized, parse_header
from strandline.gold.key_lineage import KeyLineage, find_key_lineage
from strandline.gold.statement import Problem, Statement, parse_statement, suggestion
from strandline.model.tables import TableName

_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}\Z")
_NEXT_STEP = "correct the named lines"


@dataclass(frozen=True)
class Node:
    """One SQL file. ``on_time_performance.sql`` defines ``gold.on_time_performance``."""

    name: str
    file: str
    statement: Statement
    header: Header
    key_lineage: KeyLineage | None = None
    """Driving table and key expressions of an incremental node. None: a view or a full table."""

    @property
    def materialized(self) -> Materialized:
        return self.header.materialized

    @property
    def table(self) -> TableName:
        return TableName("gold", self.name)

    def gold_references(self) -> list[str]:
        """Return the sorted names of the gold nodes that this node reads directly."""
        return sorted({table.name for table in self.statement.tables() if table.layer == "gold"})


@dataclass(frozen=True)
class Graph:
    """Gold nodes by name. `parse` has rejected cycles and unknown gold names."""

    nodes: Mapping[str, Node] = field(default_factory=dict)

    def order(self, names: Sequence[str] = ()) -> list[Node]:
        """Return the nodes in build order: every node after the nodes that it reads, then by name.

        Args:
            names: Nodes to return, with or without ``gold.``, together with the nodes that they read. Empty: all.

        Raises:
            ConfigurationError: A name has no file.
        """
        order, _ = _topological_order(self.nodes)
        selected = self._with_ancestors(names) if names else set(self.nodes)
        return [self.nodes[name] for name in order if name in selected]

    def view(self, table: TableName) -> Node | None:
        """Return the node of *table* if it is a gold view. None: the table stores rows."""
        node = _gold(self.nodes, table)
        return node if node is not None and node.materialized == "view" else None

    def inputs(self, statement: Statement) -> list[TableName]:
        """Return the stored tables that *statement* reads, directly or through views, in text order."""
        tables: dict[TableName, None] = {}
        for table in statement.tables():
            view = self.view(table)
            tables |= dict.fromkeys([table] if view is None else self.inputs(view.statement))
        return list(tables)

    def inputs_of_views(self, statement: Statement) -> list[TableName]:
        """Return the stored tables that *statement* reads through a view, even if it also names them."""
        views = [view for table in statement.tables() if (view := self.view(table))]
        return list(dict.fromkeys(table for view in views for table in self.inputs(view.statement)))

    def fingerprint(self, node: Node) -> str:
        """Return a hash of everything that defines *node*: its header, its query, and the views that it reads."""
        header = [node.materialized, node.header.description, *node.header.keys, sorted(node.header.columns.items())]
        return hashlib.sha256(json.dumps([header, self._queries(node.statement)]).encode()).hexdigest()

    def volatile(self, statement: Statement) -> tuple[str, ...]:
        """Return the non-deterministic functions in *statement* and in the views that it reads."""
        from_views = [self.volatile(view.statement) for table in statement.tables() if (view := self.view(table))]
        return tuple(
            dict.fromkeys([item.text for item in statement.volatile] + [name for names in from_views for name in names])
        )

    def _queries(self, statement: Statement) -> list[str]:
        from_views = [self._queries(view.statement) for table in statement.tables() if (view := self.view(table))]
        return [statement.rewrite(str), *(query for queries in from_views for query in queries)]

    def _with_ancestors(self, names: Sequence[str]) -> set[str]:
        waiting = [name.removeprefix("gold.") for name in names]
        unknown = [f"no gold.{name}{suggestion(name, self.nodes)}" for name in waiting if name not in self.nodes]
        if unknown:
            raise ConfigurationError("; ".join(unknown), next_step="correct the names")
        ancestors: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name not in ancestors:
                ancestors.add(name)
                waiting += self.nodes[name].gold_references()
        return ancestors


def parse(files: Mapping[str, str]) -> Graph:
    """Parse gold SQL files. Pure.

    Args:
        files: Text of each file by file name, with or without folders.

    Raises:
        ConfigurationError: Lists all problems, each as ``file:line: …``: not exactly one query, a table without
            a layer, an unknown layer or gold name, a cycle, an invalid header, two files with one name.
    """
    problems: list[str] = []
    nodes: dict[str, Node] = {}
    for file, text in sorted(files.items()):
        node, problems_of_file = _node(file, text)
        problems += [f"{file}:{problem.line}: {problem.text}" for problem in problems_of_file]
        if node is not None and node.name in nodes:
            problems.append(f"{file}:1: gold.{node.name} is defined by {nodes[node.name].file}, too")
        elif node is not None:
            nodes[node.name] = node
    names = {PurePath(file).stem for file in files}  # a file that does not parse still defines its name
    problems += _unknown_references(nodes, names) + _unreadable_driving_tables(nodes) + (cycles := _cycles(nodes))
    graph = Graph(nodes)
    problems += [] if cycles else _driving_tables_behind_views(graph)
    if problems:
        raise ConfigurationError("; ".join(problems), next_step=_NEXT_STEP)
    return graph


def _node(file: str, text: str) -> tuple[Node | None, list[Problem]]:
    name = PurePath(file).stem
    header, problems = parse_header(text)
    if not _NAME.match(name):
        problems.append(Problem(1, f"{name!r} cannot name a table, use lower-case letters, digits and underscores"))
    statement, more_problems = parse_statement(text)
    if statement is None:
        return None, problems + more_problems
    key_lineage = find_key_lineage(statement, header.keys) if header.keys else None
    if isinstance(key_lineage, Problem):
        more_problems.append(key_lineage if key_lineage.line else Problem(header.keys_line, key_lineage.text))
        key_lineage = None
    return Node(name, file, statement, header, key_lineage), problems + more_problems


def _unknown_references(nodes: Mapping[str, Node], names: Iterable[str]) -> list[str]:
    node_names = set(names)
    return [
        f"{node.file}:{reference.line}: there is no {reference.table}{suggestion(reference.table.name, node_names)}"
        for node in nodes.values()
        for reference in node.statement.references
        if reference.table.layer == "gold" and reference.table.name not in node_names
    ]


def _unreadable_driving_tables(nodes: Mapping[str, Node]) -> list[str]:
    """Reject driving tables without row changes: a view stores no rows, and a full table is replaced as a whole."""
    return [
        f"{node.file}:{node.key_lineage.line}: {driving.table} is a {driving.materialized}, "
        "so it does not tell which rows changed: make it incremental, or this one a table"
        for node in nodes.values()
        if node.key_lineage is not None
        and (driving := _gold(nodes, node.key_lineage.table))
        and driving.materialized != "incremental"
    ]


def _driving_tables_behind_views(graph: Graph) -> list[str]:
    """Reject driving tables that are also read through a view.

    An incremental build sees only the changed keys of the driving table. The view would lack all other rows.
    """
    return [
        f"{node.file}:{node.key_lineage.line}: {node.key_lineage.table} is read through a view, too: "
        "incremental needs it once, use materialized: table"
        for node in graph.nodes.values()
        if node.key_lineage is not None and node.key_lineage.table in graph.inputs_of_views(node.statement)
    ]


def _gold(nodes: Mapping[str, Node], table: TableName) -> Node | None:
    return nodes.get(table.name) if table.layer == "gold" else None


def _topological_order(nodes: Mapping[str, Node]) -> tuple[list[str], dict[str, set[str]]]:
    """Sort the nodes by Kahn's algorithm, smallest name first.

    Returns:
        Sorted names; and the unresolved references of all other nodes (cycles and their descendants).
    """
    unresolved = {name: {other for other in node.gold_references() if other in nodes} for name, node in nodes.items()}
    readers: dict[str, list[str]] = {name: [] for name in nodes}
    for name, references in unresolved.items():
        for other in references:
            readers[other].append(name)
    ready = [name for name, references in unresolved.items() if not references]
    heapq.heapify(ready)
    order: list[str] = []
    while ready:
        name = heapq.heappop(ready)
        order.append(name)
        del unresolved[name]
        for reader in readers[name]:
            unresolved[reader].discard(name)
            if not unresolved[reader]:
                heapq.heappush(ready, reader)
    return order, unresolved


def _cycles(nodes: Mapping[str, Node]) -> list[str]:
    """Return one message per cycle. Each cycle is removed before the next search."""
    problems = []
    _, unresolved = _topological_order(nodes)
    while unresolved:
        path = [min(unresolved)]
        while (following := min(unresolved[path[-1]])) not in path:
            path.append(following)
        cycle = path[path.index(following) :]
        smallest = cycle.index(min(cycle))
        cycle = cycle[smallest:] + cycle[:smallest]
        node = nodes[cycle[0]]
        target = cycle[1] if len(cycle) > 1 else cycle[0]
        line = next(item.line for item in node.statement.references if item.table == TableName("gold", target))
        problems.append(f"{node.file}:{line}: cycle {' → '.join(f'gold.{name}' for name in [*cycle, cycle[0]])}")
        _, unresolved = _topological_order({name: nodes[name] for name in unresolved if name not in cycle})
    return problems
