"""Parse and validate the suites of expectations in ``conf/quality/*.yml``."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Literal, get_args

from strandline.errors import ConfigurationError
from strandline.model.tables import LAYERS, TableName
from strandline.model.yaml_input import parse_yaml
from strandline.plain_text import printable

OnFailure = Literal["warn", "quarantine", "block"]
Rows = Literal["all", "changed"]

_KEYS = ("table", "where", "rows", "on_failure", "expectations")
_TABLE = re.compile(r"([a-z]+)\.([a-z0-9_]+)\Z")


@dataclass(frozen=True)
class ExpectationKind:
    """Definition of an expectation: its arguments, its required arguments and the level that it checks.

    Level ``row``: each row on its own. ``rows``: rows compared with each other. ``table``: the table as a whole, so it
    names no failing rows.
    """

    arguments: tuple[str, ...]
    level: Literal["row", "rows", "table"] = "table"
    required: tuple[str, ...] = ()


@dataclass(frozen=True)
class Expectation:
    """One expectation: its Great Expectations name and its arguments."""

    type: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def column(self) -> str | None:
        """Return the column that it checks. None: several columns or the whole table."""
        column = self.arguments.get("column")
        return column if isinstance(column, str) else None


@dataclass(frozen=True)
class Suite:
    """Expectations of one file. ``conf/quality/flights.yml`` is the suite ``flights``."""

    name: str
    file: str
    table: TableName
    on_failure: OnFailure
    expectations: tuple[Expectation, ...]
    where: str | None = None
    rows: Rows = "all"

    @property
    def fingerprint(self) -> str:
        """Return a hash of everything that affects the result: table, condition, options and expectations."""
        expectations = [[item.type, dict(item.arguments)] for item in self.expectations]
        text = json.dumps(
            [str(self.table), self.where, self.rows, self.on_failure, expectations], default=str, sort_keys=True
        )
        return hashlib.sha256(text.encode()).hexdigest()


def parse_suites(files: Mapping[str, str], kinds: Mapping[str, ExpectationKind]) -> list[Suite]:
    """Parse suites. Pure.

    Args:
        files: YAML text by file name.
        kinds: Every expectation by name (`strandline.quality.gate.known_kinds`).

    Returns:
        Suites in file name order.

    Raises:
        ConfigurationError: Lists all problems, each with its file: invalid YAML; an unknown key, expectation or
            argument (with the nearest name); a table that is not ``layer.name``; an unknown ``on_failure``, or an
            ``on_failure`` that an expectation does not support.
    """
    problems: list[str] = []
    suites = []
    for file, text in sorted(files.items()):
        errors: list[str] = []
        suite = _suite(file, text, kinds, errors)
        problems += [f"{file}: {problem}" for problem in errors]
        if suite is not None and not errors:
            suites.append(suite)
    if problems:
        raise ConfigurationError(
            "; ".join(problems), next_step="correct the named files; strandline explain quality lists every key"
        )
    return suites


def select(suites: Sequence[Suite], names: Sequence[str]) -> list[Suite]:
    """Return the suites whose name or table is in *names*. Empty *names*: all suites.

    Raises:
        ConfigurationError: A name matches no suite.
    """
    candidates = {key for suite in suites for key in (suite.name, str(suite.table))}
    unknown = [f"no suite {name}{_suggestion(name, candidates)}" for name in names if name not in candidates]
    if unknown:
        raise ConfigurationError("; ".join(unknown), next_step="correct the names, or add the file to conf/quality")
    return [suite for suite in suites if not names or suite.name in names or str(suite.table) in names]


def _suite(file: str, text: str, kinds: Mapping[str, ExpectationKind], problems: list[str]) -> Suite | None:
    try:
        content = parse_yaml(text)
    except ValueError as error:
        problems.append(str(error))
        return None
    if not isinstance(content, dict):
        problems.append("a mapping with table and expectations is expected")
        return None
    problems += [
        f"unknown key {printable(str(key))}{_suggestion(str(key), _KEYS)}" for key in content if key not in _KEYS
    ]
    table = _table(content.get("table"), problems)
    where = content.get("where")
    if where is not None and not (isinstance(where, str) and where.strip()):
        problems.append("where: a condition in SQL is expected")
    on_failure, rows = content.get("on_failure", "warn"), content.get("rows", "all")
    for key, value, allowed in (("on_failure", on_failure, get_args(OnFailure)), ("rows", rows, get_args(Rows))):
        if value not in allowed:
            problems.append(f"{key}: {value}{_suggestion(str(value), allowed)}")
    expectations = _expectations(content.get("expectations"), kinds, problems)
    if table is None or problems:
        return None
    suite = Suite(PurePath(file).stem, file, table, on_failure, expectations, where, rows)
    problems += _unsupported_options(suite, kinds)
    return suite


def _unsupported_options(suite: Suite, kinds: Mapping[str, ExpectationKind]) -> Iterator[str]:
    """Yield a problem for each option that the table or an expectation of *suite* does not support."""
    for key, used in (
        ("rows: changed", suite.rows == "changed"),
        ("on_failure: quarantine", suite.on_failure == "quarantine"),
    ):
        if used and suite.table.layer != "silver":
            yield f"{key} is for silver tables, {suite.table} has no keys and no change feed"
    for number, item in enumerate(suite.expectations, start=1):
        level, where = kinds[item.type].level, f"expectations, {number} ({item.type})"
        if suite.rows == "changed" and level != "row":
            yield f"{where}: it looks at more than one row, so it needs a suite with rows: all"
        if suite.on_failure == "quarantine" and level == "table":
            yield f"{where}: it is about the table, no row is at fault; put it into a suite with warn or block"
        if suite.on_failure == "quarantine" and "mostly" in item.arguments:
            yield f"{where}: mostly is about all rows, in quarantine each stands for itself"


def _table(value: Any, problems: list[str]) -> TableName | None:
    match = _TABLE.match(value) if isinstance(value, str) else None
    if match is None:
        problems.append("table: layer.name is expected, such as silver.orders")
        return None
    if match[1] not in LAYERS:
        problems.append(f"table: there is no layer {match[1]}{_suggestion(match[1], LAYERS)}")
        return None
    return TableName(match[1], match[2])


def _expectations(value: Any, kinds: Mapping[str, ExpectationKind], problems: list[str]) -> tuple[Expectation, ...]:
    if not isinstance(value, list) or not value:
        problems.append("expectations: a list of at least one is expected")
        return ()
    expectations = []
    for number, item in enumerate(value, start=1):
        if not isinstance(item, dict) or not isinstance(item.get("type"), str):
            problems.append(f"expectations, {number}: a mapping with type is expected")
            continue
        kind = item["type"]
        if kind not in kinds:
            problems.append(f"expectations, {number}: unknown expectation {kind}{_suggestion(kind, kinds)}")
            continue
        arguments = {str(key): argument for key, argument in item.items() if key != "type"}
        problems += [
            f"expectations, {number} ({kind}): unknown argument {key}{_suggestion(key, kinds[kind].arguments)}"
            for key in arguments
            if key not in kinds[kind].arguments
        ]
        problems += [
            f"expectations, {number} ({kind}): {key} is missing" for key in kinds[kind].required if key not in arguments
        ]
        expectations.append(Expectation(kind, arguments))
    return tuple(expectations)


def _suggestion(name: str, candidates: Iterable[str]) -> str:
    names = sorted(candidates)
    match = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f" (did you mean {match[0]}?)" if match else f" (there is: {', '.join(names[:20])})" if names else ""
