"""Gold's SQL files as a graph: what each one reads, and the order in which they can be built."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Literal, get_args

from pipelines.errors import ConfigurationError
from pipelines.gold.statement import Problem, Statement, nearest, parse_statement
from pipelines.model.tables import TableName

Materialized = Literal["view", "table"]

_HEADER = re.compile(r"--\s?(\w+)\s*:\s*(.*?)\s*\Z")
_CONTINUED = re.compile(r"--\s{2,}(\S.*?)\s*\Z")
_KEYS = ("materialized", "description")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}\Z")
_CORRECT_IT = "correct the named lines"


@dataclass(frozen=True)
class Node:
    """One file: ``on_time_performance.sql`` is ``gold.on_time_performance``."""

    name: str
    file: str
    statement: Statement
    materialized: Materialized = "view"
    description: str = ""

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
            readers = [node.name for node in self.nodes.values() if current in node.gold_references() and node.name not in found]
            found.update(readers)
            waiting += readers
        return sorted(found)

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
    problems += _unknown(nodes, names) + _cycles(nodes)
    if problems:
        raise ConfigurationError("; ".join(problems), next_step=_CORRECT_IT)
    return Graph(nodes)


def _node(file: str, text: str) -> tuple[Node | None, list[Problem]]:
    name = PurePath(file).stem
    header, problems = _header(text)
    if not _NAME.match(name):
        problems.append(Problem(1, f"{name!r} cannot name a table, use lower-case letters, digits and underscores"))
    materialized = header.get("materialized", (1, "view"))
    if materialized[1] == "incremental":
        problems.append(Problem(materialized[0], "materialized: incremental is not there yet, use table"))
    elif materialized[1] not in get_args(Materialized):
        problems.append(Problem(materialized[0], f"materialized: {materialized[1]}{nearest(materialized[1], get_args(Materialized))}"))
    statement, found = parse_statement(text)
    if statement is None:
        return None, problems + found
    kind: Materialized = "table" if materialized[1] == "table" else "view"
    return Node(name, file, statement, kind, header.get("description", (1, ""))[1]), problems + found


def _header(text: str) -> tuple[dict[str, tuple[int, str]], list[Problem]]:
    """``-- key: value`` of the comment lines at the top; a line indented by two blanks goes on with the value before it."""
    header: dict[str, tuple[int, str]] = {}
    problems: list[Problem] = []
    key = ""
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), start=1):
        line = line.strip()
        if line and not line.startswith("--"):
            break
        if (match := _HEADER.match(line)) and match[1].lower() in _KEYS:
            key = match[1].lower()
            if key in header:
                problems.append(Problem(number, f"{key} is given twice"))
            header[key] = (number, match[2])
        elif key and (match := _CONTINUED.match(line)):
            header[key] = (header[key][0], f"{header[key][1]} {match[1]}".strip())
        else:
            key = ""
            match = _HEADER.match(line)
            if match and "did you mean" in (hint := nearest(match[1].lower(), _KEYS)):
                problems.append(Problem(number, f"unknown header {match[1]}{hint}"))
    return header, problems


def _unknown(nodes: Mapping[str, Node], names: Iterable[str]) -> list[str]:
    known = set(names)
    return [
        f"{node.file}:{reference.line}: there is no {reference.table}{nearest(reference.table.name, known)}"
        for node in nodes.values()
        for reference in node.statement.references
        if reference.table.layer == "gold" and reference.table.name not in known
    ]


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
