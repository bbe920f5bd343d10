"""Parse one SQL query: find the tables that it reads, and replace their names in its text."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from strandline.gold.functions import changing_by_themselves
from strandline.model.tables import LAYERS, TableName, quoted, safe_name

DIALECT = "databricks"  # Spark SQL, plus the few keywords that Databricks adds
logging.getLogger("sqlglot").setLevel(logging.ERROR)  # its warning "falling back to Command" is an error here


@dataclass(frozen=True)
class Problem:
    """Problem in a text, with its line number. The first line is 1."""

    line: int
    text: str


@dataclass(frozen=True)
class Reference:
    """Table that a query reads. *start* and *end* (exclusive) are the offsets of its name in the text.

    *written*: the name as the query has it, without the layer.
    """

    table: TableName
    written: str
    line: int
    start: int
    end: int
    needs_alias: bool = False
    is_versioned: bool = False
    """True: read with time travel. Only a table name can replace it, not a subquery."""


@dataclass(frozen=True)
class Statement:
    """Parsed query.

    *body*: start and end offset of the query, without surrounding comments and the final semicolon.
    *qualifiers*: offsets of layer prefixes in column names, such as ``silver.`` in ``silver.flights.carrier``.
    """

    text: str
    body: tuple[int, int]
    references: tuple[Reference, ...] = ()
    qualifiers: tuple[tuple[int, int], ...] = ()
    volatile: tuple[Problem, ...] = ()
    """Functions and literals that may change by themselves, such as the current time, with their lines."""

    def tables(self) -> tuple[TableName, ...]:
        """Return each table once, in text order."""
        return tuple(dict.fromkeys(reference.table for reference in self.references))

    def renamed(self, table_of: Callable[[Reference], TableName]) -> Statement:
        """Return the statement with each reference bound to the table that *table_of* returns for it."""
        bound = (replace(reference, table=table_of(reference)) for reference in self.references)
        return replace(self, references=tuple(bound))

    def rewrite(
        self, target: Callable[[TableName], str], versioned_target: Callable[[TableName], str] | None = None
    ) -> str:
        """Return the query text with every table name replaced by ``target(table)``.

        Only table names and column qualifiers change. Comments, strings and all other text stay as written.
        A table without an alias gets its own name as alias: ``flights.carrier`` and ``silver.flights.carrier`` resolve.

        Args:
            target: Replacement of a table: a name, or a query in brackets.
            versioned_target: Replacement of a table with time travel, always a name. None: *target*.
        """
        edits = [(start, end, "") for start, end in self.qualifiers]
        for reference in self.references:
            alias = f" AS {quoted(reference.written)}" if reference.needs_alias else ""
            replaced = (versioned_target or target) if reference.is_versioned else target
            edits.append((reference.start, reference.end, replaced(reference.table) + alias))
        pieces, position = [], self.body[0]
        for start, end, replacement in sorted(edits):
            pieces += [self.text[position:start], replacement]
            position = end
        return "".join([*pieces, self.text[position : self.body[1]]])


def parse_statement(text: str) -> tuple[Statement | None, list[Problem]]:
    """Parse one query. Pure.

    Returns:
        The statement and the problems of its table references. No statement if the text is not exactly one query.
    """
    try:
        tokens = sqlglot.tokenize(text, dialect=DIALECT)
        parsed = [
            tree
            for tree in sqlglot.parse(text, dialect=DIALECT)
            if tree is not None and not isinstance(tree, exp.Semicolon)
        ]
    except ParseError as error:
        return None, [Problem(int(item.get("line") or 1), _parse_error_text(item)) for item in error.errors] or [
            Problem(1, "not SQL")
        ]
    except SqlglotError:
        return None, [Problem(1, "not SQL: a quote or a comment is not closed")]
    except AttributeError:  # a defect of sqlglot: unknown pipe operators
        return None, [Problem(1, "not SQL that can be read here; write it as SELECT … FROM …")]
    except RecursionError:
        return None, [Problem(1, "nested too deeply")]
    if not parsed:
        return None, [Problem(1, "no query in it")]
    if len(parsed) > 1:
        return None, [Problem(line_of(parsed[1]), "more than one statement where one query is expected")]
    if not isinstance(parsed[0], exp.Query):
        return None, [Problem(tokens[0].line, f"{tokens[0].text.upper()} is not a query, start with SELECT or WITH")]
    ends = [token for token in tokens if token.token_type != sqlglot.TokenType.SEMICOLON]
    references, problems = _references(parsed[0])
    body = (ends[0].start, ends[-1].end + 1)
    volatile = (Problem(line, name) for line, name in changing_by_themselves(tokens, _aliases(parsed[0])))
    return Statement(
        text, body, tuple(references), tuple(_qualifiers(parsed[0], references)), tuple(volatile)
    ), problems


def parse_tree(statement: Statement) -> exp.Query:
    """Return the syntax tree of *statement*. Line numbers count from the start of the file."""
    tree = sqlglot.parse_one(statement.text, dialect=DIALECT)
    assert isinstance(tree, exp.Query)  # checked by parse_statement
    return tree


def suggestion(name: str, candidates: Iterable[str]) -> str:
    """Return the end of an error message: the known name nearest to *name*, or a list of known names."""
    names = sorted(candidates)
    match = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if match:
        return f" (did you mean {match[0]}?)"
    return f" (there is: {', '.join(names[:20])}{', …' if len(names) > 20 else ''})" if names else ""


def _references(query: exp.Query) -> tuple[list[Reference], list[Problem]]:
    references: list[Reference] = []
    problems: list[Problem] = []
    for table in query.find_all(exp.Table):
        reference = _reference(table) if table.find_ancestor(exp.Hint) is None else None  # a hint names aliases
        if isinstance(reference, Reference):
            references.append(reference)
        elif reference is not None:
            problems.append(reference)
    return sorted(references, key=lambda item: item.start), sorted(problems, key=lambda item: item.line)


def _reference(table: exp.Table) -> Reference | Problem | None:
    """Return the reference of a lake table; None for a CTE or a table function."""
    parts = table.parts
    if not all(isinstance(part, exp.Identifier) for part in parts):
        hidden = isinstance(table.this, exp.Func) and table.this.name.lower() == "identifier"
        if isinstance(table.this, exp.Func) and not hidden:
            return None
        return Problem(line_of(table), f"{table.sql(DIALECT)} hides which table it is, write layer.name")
    shown = ".".join(part.name for part in parts)
    if len(parts) == 1:
        if _is_cte(table):
            return None
        return Problem(line_of(table), f"{shown} has no layer, write silver.{shown} or gold.{shown}")
    if len(parts) > 2:
        return Problem(line_of(table), f"{shown} has too many parts, write layer.name")
    layer, name = (part.name.lower() for part in parts)  # Spark's names are not case-sensitive
    if layer not in LAYERS:
        return Problem(line_of(table), f"{shown}: there is no layer {parts[0].name}{suggestion(layer, LAYERS)}")
    if layer == "silver" and not re.fullmatch(r"\w+", name, re.ASCII):
        name = safe_name(parts[1].name)  # a collection's name in MongoDB: no table has it
    # Time travel and sampling precede an alias in SQL, so no alias can follow the name here.
    is_versioned = any(table.args.get(key) for key in ("version", "when"))
    needs_alias = not table.alias and not is_versioned and not table.args.get("sample")
    start, end = _span(parts[0])[0], _span(parts[1])[1]
    return Reference(TableName(layer, name), parts[1].name, line_of(parts[1]), start, end, needs_alias, is_versioned)


def _is_cte(table: exp.Table) -> bool:
    """Return True if *table* is the name of a CTE in scope.

    In scope are all CTEs of an outer WITH, and earlier CTEs of its own WITH. With RECURSIVE, also its own CTE.
    """
    name = table.name.lower()
    node: exp.Expr = table
    inside: exp.Expr | None = None
    while node.parent is not None:
        node, below = node.parent, node
        if isinstance(below, exp.CTE):
            inside = below
        with_ = node if isinstance(node, exp.With) else node.args.get("with_")
        if isinstance(with_, exp.With) and any(cte.alias.lower() == name for cte in _visible_ctes(with_, inside)):
            return True
        if not isinstance(node, exp.With):
            inside = None
    return False


def _visible_ctes(with_: exp.With, inside: exp.Expr | None) -> Iterator[exp.Expr]:
    for cte in with_.expressions:
        own = cte is inside
        if not own or with_.args.get("recursive"):
            yield cte
        if own:
            return


def _qualifiers(query: exp.Query, references: list[Reference]) -> Iterator[tuple[int, int]]:
    """Yield the offsets of layer prefixes in columns such as ``silver.flights.carrier``. An alias has no layer."""
    references_by_name = {(reference.table.layer, reference.written.lower()) for reference in references}
    aliases = _aliases(query)
    for column in query.find_all(exp.Column):
        parts = column.parts
        if len(parts) > 2 and all(part.meta for part in parts[:2]):
            layer, name = (part.name.lower() for part in parts[:2])
            if (layer, name) in references_by_name and layer not in aliases:
                yield _span(parts[0])[0], _span(parts[1])[0]


def _aliases(query: exp.Query) -> set[str]:
    return {alias.name.lower() for alias in query.find_all(exp.TableAlias)}


def _span(part: exp.Expr) -> tuple[int, int]:
    return int(part.meta["start"]), int(part.meta["end"]) + 1


def line_of(node: exp.Expr) -> int:
    """Return the line of the first token of *node* with a known position; 1 if there is none."""
    for inner in node.walk():
        if "line" in inner.meta:
            return int(inner.meta["line"])
    return 1


def _parse_error_text(item: dict[str, Any]) -> str:
    """Return a parse error of sqlglot in one line: its description and the unexpected token."""
    description = re.sub(r" but got <Token.*", "", str(item.get("description") or "not SQL"), flags=re.DOTALL).rstrip(
        "."
    )
    word = str(item.get("highlight") or "").strip()
    return f"{description} at {word[:40]!r}" if word else description
