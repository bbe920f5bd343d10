"""Comment lines at the top of a gold SQL file: materialization, keys and descriptions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

from strandline.gold.statement import Problem, suggestion

Materialized = Literal["view", "table", "incremental"]

_ENTRY = re.compile(r"--\s?(column\s+)?(\w+)\s*:\s*(.*?)\s*\Z", re.IGNORECASE)
_CONTINUED = re.compile(r"--\s{2,}(\S.*?)\s*\Z")
_NAMES = ("materialized", "description", "keys")


@dataclass(frozen=True)
class Header:
    """Header of a gold file.

    ``-- materialized: incremental``, ``-- keys: carrier, day``, ``-- description: …``, ``-- column carrier: …``.
    """

    materialized: Materialized = "view"
    description: str = ""
    keys: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    keys_line: int = 1


def parse_header(text: str) -> tuple[Header, list[Problem]]:
    """Parse the comment lines above the query. Pure.

    Returns:
        The header without its invalid entries, and one problem per invalid entry.
    """
    entries, problems = _entries(text)
    line, materialized = entries.get("materialized", (1, "view"))
    if materialized not in get_args(Materialized):
        problems.append(
            Problem(line, f"materialized: {materialized}{suggestion(materialized, get_args(Materialized))}")
        )
        materialized = "view"
    keys_line, listed = entries.get("keys", (line, ""))
    keys = tuple(key.strip().lower() for key in listed.split(",") if key.strip())
    if materialized == "incremental" and not keys:
        problems.append(Problem(keys_line, "incremental needs keys: the columns of the result that identify a row"))
    if keys and materialized != "incremental":
        problems.append(Problem(keys_line, f"keys are for materialized: incremental, this is a {materialized}"))
        keys = ()
    columns = {key.removeprefix("column "): text for key, (_, text) in entries.items() if key.startswith("column ")}
    description = entries.get("description", (1, ""))[1]
    return Header(cast(Materialized, materialized), description, keys, columns, keys_line), problems


def _entries(text: str) -> tuple[dict[str, tuple[int, str]], list[Problem]]:
    """Parse ``-- key: value`` lines. A line indented by two spaces continues the previous value.

    Returns:
        Line number and value by key, and the problems found.
    """
    entries: dict[str, tuple[int, str]] = {}
    problems: list[Problem] = []
    key = ""
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), start=1):
        line = line.strip()
        if line and not line.startswith("--"):
            break
        match = _ENTRY.match(line)
        name = "" if match is None else f"{'column ' if match[1] else ''}{match[2].lower()}"
        if match and (match[1] or name in _NAMES):
            key = name
            if key in entries:
                problems.append(Problem(number, f"{key} is given twice"))
            entries[key] = (number, match[3])
        elif key and (continued := _CONTINUED.match(line)):
            entries[key] = (entries[key][0], f"{entries[key][1]} {continued[1]}".strip())
        else:
            key = ""
            if match and "did you mean" in (hint := suggestion(name, _NAMES)):
                problems.append(Problem(number, f"unknown header {match[2]}{hint}"))
    return entries, problems
