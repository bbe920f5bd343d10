"""What ``conf/quality/*.yml`` may say, and what it says: suites of expectations, validated."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, get_args

from pipelines.errors import ConfigurationError
from pipelines.model.plain_yaml import parse_yaml
from pipelines.model.tables import Layer, TableName

_KEYS = ("table", "where", "on_failure", "expectations")
_ON_FAILURE = ("warn", "block")
_TABLE = re.compile(r"([a-z]+)\.([a-z0-9_]+)\Z")


@dataclass(frozen=True)
class Expectation:
    """One expectation in Great Expectations' words: its name and its arguments."""

    type: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def column(self) -> str | None:
        """The column it is about; None where it is about several or the table."""
        column = self.arguments.get("column")
        return column if isinstance(column, str) else None


@dataclass(frozen=True)
class Suite:
    """One file: ``conf/quality/flights.yml`` is the suite ``flights``."""

    name: str
    file: str
    table: TableName
    on_failure: str
    expectations: tuple[Expectation, ...]
    where: str | None = None


def parse_suites(files: Mapping[str, str], known: Mapping[str, Sequence[str]]) -> list[Suite]:
    """Read suites. Pure.

    Args:
        files: File name to its YAML text.
        known: Every expectation's name to the names of its arguments (`pipelines.quality.expectations.known_expectations`).

    Returns:
        Suites by name.

    Raises:
        ConfigurationError: All problems at once, each with its file: not YAML, an unknown key, expectation or argument (with the nearest
            name), a table that is not ``layer.name``, an ``on_failure`` that does not exist.
    """
    problems: list[str] = []
    suites = []
    for file, text in sorted(files.items()):
        found: list[str] = []
        suite = _suite(file, text, known, found)
        problems += [f"{file}: {problem}" for problem in found]
        if suite is not None and not found:
            suites.append(suite)
    if problems:
        raise ConfigurationError("; ".join(problems), next_step="correct the named files; conf/quality/README.md lists every key")
    return suites


def select(suites: Sequence[Suite], names: Sequence[str]) -> list[Suite]:
    """Suites whose name or table is among *names*; all, where none is given.

    Raises:
        ConfigurationError: A name fits no suite.
    """
    known = {key for suite in suites for key in (suite.name, str(suite.table))}
    unknown = [f"no suite {name}{_nearest(name, known)}" for name in names if name not in known]
    if unknown:
        raise ConfigurationError("; ".join(unknown), next_step="correct the names, or add the file to conf/quality")
    return [suite for suite in suites if not names or suite.name in names or str(suite.table) in names]


def _suite(file: str, text: str, known: Mapping[str, Sequence[str]], problems: list[str]) -> Suite | None:
    try:
        content = parse_yaml(text)
    except ValueError as error:
        problems.append(str(error))
        return None
    if not isinstance(content, dict):
        problems.append("a mapping with table and expectations is expected")
        return None
    problems += [f"unknown key {key}{_nearest(str(key), _KEYS)}" for key in content if key not in _KEYS]
    table = _table(content.get("table"), problems)
    where = content.get("where")
    if where is not None and not (isinstance(where, str) and where.strip()):
        problems.append("where: a condition in SQL is expected")
    on_failure = content.get("on_failure", "warn")
    if on_failure == "quarantine":
        problems.append("on_failure: quarantine is not there yet, use warn or block")
    elif on_failure not in _ON_FAILURE:
        problems.append(f"on_failure: {on_failure}{_nearest(str(on_failure), _ON_FAILURE)}")
    expectations = _expectations(content.get("expectations"), known, problems)
    return None if table is None else Suite(PurePath(file).stem, file, table, str(on_failure), expectations, where)


def _table(value: Any, problems: list[str]) -> TableName | None:
    match = _TABLE.match(value) if isinstance(value, str) else None
    if match is None:
        problems.append("table: layer.name is expected, such as silver.orders")
        return None
    if match[1] not in get_args(Layer):
        problems.append(f"table: there is no layer {match[1]}{_nearest(match[1], get_args(Layer))}")
        return None
    return TableName(match[1], match[2])  # type: ignore[arg-type]  # why: checked above


def _expectations(value: Any, known: Mapping[str, Sequence[str]], problems: list[str]) -> tuple[Expectation, ...]:
    if not isinstance(value, list) or not value:
        problems.append("expectations: a list of at least one is expected")
        return ()
    found = []
    for number, item in enumerate(value, start=1):
        if not isinstance(item, dict) or not isinstance(item.get("type"), str):
            problems.append(f"expectations, {number}: a mapping with type is expected")
            continue
        kind = item["type"]
        if kind not in known:
            problems.append(f"expectations, {number}: unknown expectation {kind}{_nearest(kind, known)}")
            continue
        arguments = {str(key): argument for key, argument in item.items() if key != "type"}
        problems += [
            f"expectations, {number} ({kind}): unknown argument {key}{_nearest(key, known[kind])}"
            for key in arguments
            if key not in known[kind]
        ]
        found.append(Expectation(kind, arguments))
    return tuple(found)


def _nearest(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    match = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f" (did you mean {match[0]}?)" if match else f" (there is: {', '.join(names[:20])})" if names else ""
