"""Gold's SQL files as a graph: what each one reads, and the order in which they can be built."""

from __future__ import annotations

import hashlib
import heapq
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from pipelines.errors import ConfigurationError
from pipelines.gold.header import Header, Materialized, parse_header
from pipelines.gold.key_lineage import KeyLineage, find_key_lineage
from pipelines.gold.statement import Problem, Statement, nearest, parse_statement
from pipelines.model.tables import TableName

_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}\Z")
_CORRECT_IT = "correct the named lines"


@dataclass(frozen=True)
class Node:
    """One file: ``on_time_performance.sql`` is ``gold.on_time_performance``."""

    name: str
    file: str
    statement: Statement
    header: Header
    key_lineage: KeyLineage | None = None
    """Of an incremental one: where its keys come from."""

    @property
    def materialized(self) -> Materialized:
        return self.header.materialized

    @property
    def table(self) -> TableName:
        return TableName("gold", self.name)

    def gold_references(self) -> list[str]:
        """Names of the gold nodes that this one reads."""
        return sorted({table.name for table in self.statement.tables() if table.layer == "gold"})


@dataclass(frozen=True)
class Graph:
    """Nodes by name; free of cycles and of unknown gold names (`parse` has refused both)."""

    nodes: Mapping[str, Node] = field(default_factory=dict)

    def order(self, names: Sequence[str] = ()) -> list[Node]:
        """Nodes after everything they read, otherwise by name.

        Args:
            names: Only these, with or without ``gold.``, and what they read; empty: all.

        Raises:
            ConfigurationError: A name has no file.
        """
        order, _ = _sorted(self.nodes)
        wanted = self._with_ancestors(names) if names else set(self.nodes)
        return [self.nodes[name] for name in order if name in wanted]

    def descendants(self, name: str) -> list[str]:
        """Names of everything that reads *name*, directly or not; sorted."""
        found: set[str] = set()
        waiting = [name]
        while waiting:
            current = waiting.pop()
            readers = [
                node.name
                for node in self.nodes.values()
                if current in node.gold_references() and node.name not in found
            ]
            found.update(readers)
            waiting += readers
        return sorted(found)

    def view(self, table: TableName) -> Node | None:
        """The view behind *table*; None for whatever holds rows of its own."""
        node = _gold(self.nodes, table)
        return node if node is not None and node.materialized == "view" else None

    def inputs(self, statement: Statement) -> list[TableName]:
        """Tables with rows that *statement* reads, itself or through views; in the order of the text."""
        found: dict[TableName, None] = {}
        for table in statement.tables():
            view = self.view(table)
            found |= dict.fromkeys([table] if view is None else self.inputs(view.statement))
        return list(found)

    def inputs_of_views(self, statement: Statement) -> list[TableName]:
        """Those of `inputs` that *statement* reads through a view, be it that it names them, too."""
        views = [view for table in statement.tables() if (view := self.view(table))]
        return list(dict.fromkeys(table for view in views for table in self.inputs(view.statement)))

    def fingerprint(self, node: Node) -> str:
        """Differs whenever *node* would be built differently from the same rows: its header, its query, or a view that it reads."""
        header = [node.materialized, node.header.description, *node.header.keys, sorted(node.header.columns.items())]
        return hashlib.sha256(json.dumps([header, self._queries(node.statement)]).encode()).hexdigest()

    def volatile(self, statement: Statement) -> tuple[str, ...]:
        """Functions in *statement*, or in a view that it reads, whose result changes by itself."""
        below = [self.volatile(view.statement) for table in statement.tables() if (view := self.view(table))]
        return tuple(
            dict.fromkeys([item.text for item in statement.volatile] + [name for names in below for name in names])
        )

    def _queries(self, statement: Statement) -> list[str]:
        below = [self._queries(view.statement) for table in statement.tables() if (view := self.view(table))]
        return [statement.rewrite(str), *(query for queries in below for query in queries)]

    def _with_ancestors(self, names: Sequence[str]) -> set[str]:
        waiting = [name.removeprefix("gold.") for name in names]
        unknown = [f"no gold.{name}{nearest(name, self.nodes)}" for name in waiting if name not in self.nodes]
        if unknown:
            raise ConfigurationError("; ".join(unknown), next_step="correct the names")
        found: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += self.nodes[name].gold_references()
        return found


def parse(files: Mapping[str, str]) -> Graph:
    """Read gold's SQL files. Pure.

    Args:
        files: File name (with or without folders) to its text.

    Raises:
        ConfigurationError: All problems at once, each as ``file:line: …``: not one query, a reference without a layer, to a layer
            or a gold name that does not exist, a cycle, a header that is misspelt, two files of one name.
    """
    problems: list[str] = []
    nodes: dict[str, Node] = {}
    for file, text in sorted(files.items()):
        node, found = _node(file, text)
        problems += [f"{file}:{problem.line}: {problem.text}" for problem in found]
        if node is not None and node.name in nodes:
            problems.append(f"{file}:1: gold.{node.name} is defined by {nodes[node.name].file}, too")
        elif node is not None:
            nodes[node.name] = node
    names = {PurePath(file).stem for file in files}  # a file that does not parse is still no unknown name
    problems += _unknown(nodes, names) + _undrivable(nodes) + (cycles := _cycles(nodes))
    graph = Graph(nodes)
    problems += [] if cycles else _driven_twice(graph)
    if problems:
        raise ConfigurationError("; ".join(problems), next_step=_CORRECT_IT)
    return graph


def _node(file: str, text: str) -> tuple[Node | None, list[Problem]]:
    name = PurePath(file).stem
    header, problems = parse_header(text)
    if not _NAME.match(name):
        problems.append(Problem(1, f"{name!r} cannot name a table, use lower-case letters, digits and underscores"))
    statement, found = parse_statement(text)
    if statement is None:
        return None, problems + found
    key_lineage = find_key_lineage(statement, header.keys) if header.keys else None
    if isinstance(key_lineage, Problem):
        found.append(key_lineage if key_lineage.line else Problem(header.keys_line, key_lineage.text))
        key_lineage = None
    return Node(name, file, statement, header, key_lineage), problems + found


def _unknown(nodes: Mapping[str, Node], names: Iterable[str]) -> list[str]:
    known = set(names)
    return [
        f"{node.file}:{reference.line}: there is no {reference.table}{nearest(reference.table.name, known)}"
        for node in nodes.values()
        for reference in node.statement.references
        if reference.table.layer == "gold" and reference.table.name not in known
    ]


def _undrivable(nodes: Mapping[str, Node]) -> list[str]:
    """A view holds no rows whose changes could be read, and a table of gold is replaced as a whole."""
    return [
        f"{node.file}:{node.key_lineage.line}: {key_lineage.table} is a {key_lineage.materialized}, so it does not tell which rows changed: "
        "make it incremental, or this one a table"
        for node in nodes.values()
        if node.key_lineage is not None
        and (key_lineage := _gold(nodes, node.key_lineage.table))
        and key_lineage.materialized != "incremental"
    ]


def _driven_twice(graph: Graph) -> list[str]:
    """Only the changed keys of a driving table are looked at: whatever a view makes of its other rows would be wrong."""
    return [
        f"{node.file}:{node.key_lineage.line}: {node.key_lineage.table} is read through a view, too: "
        "incremental needs it once, use materialized: table"
        for node in graph.nodes.values()
        if node.key_lineage is not None and node.key_lineage.table in graph.inputs_of_views(node.statement)
    ]


def _gold(nodes: Mapping[str, Node], table: TableName) -> Node | None:
    return nodes.get(table.name) if table.layer == "gold" else None


def _sorted(nodes: Mapping[str, Node]) -> tuple[list[str], dict[str, set[str]]]:
    """Kahn's order, smallest name first, and what is left of the references of those that have none (cycles and what hangs on them)."""
    left = {name: {other for other in node.gold_references() if other in nodes} for name, node in nodes.items()}
    readers: dict[str, list[str]] = {name: [] for name in nodes}
    for name, references in left.items():
        for other in references:
            readers[other].append(name)
    ready = [name for name, references in left.items() if not references]
    heapq.heapify(ready)
    order: list[str] = []
    while ready:
        name = heapq.heappop(ready)
        order.append(name)
        del left[name]
        for reader in readers[name]:
            left[reader].discard(name)
            if not left[reader]:
                heapq.heappush(ready, reader)
    return order, left


def _cycles(nodes: Mapping[str, Node]) -> list[str]:
    """One message for every cycle, until cutting them all would leave none."""
    problems = []
    _, left = _sorted(nodes)
    while left:
        path = [min(left)]
        while (following := min(left[path[-1]])) not in path:
            path.append(following)
        cycle = path[path.index(following) :]
        smallest = cycle.index(min(cycle))
        cycle = cycle[smallest:] + cycle[:smallest]
        node = nodes[cycle[0]]
        target = cycle[1] if len(cycle) > 1 else cycle[0]
        line = next(item.line for item in node.statement.references if item.table == TableName("gold", target))
        problems.append(f"{node.file}:{line}: cycle {' → '.join(f'gold.{name}' for name in [*cycle, cycle[0]])}")
        _, left = _sorted({name: nodes[name] for name in left if name not in cycle})
    return problems
