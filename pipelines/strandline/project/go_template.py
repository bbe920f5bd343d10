"""The part of Go's text templates that the project's files use.

`databricks bundle init` renders the same files with Go's own implementation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_ACTION: Final = re.compile(r'(\s*)\{\{(-?)\s*((?:"[^"]*"|[^"}])*?)\s*(-?)\}\}(\s*)', re.DOTALL)
BUNDLE_UUID: Final = "bundle_uuid"
_CONDITION: Final = re.compile(r'if (eq|ne) \.(\w+) "([^"]*)"')


def render(text: str, values: Mapping[str, str]) -> str:
    """Return *text* with its actions carried out.

    They are ``.name``, ``"text"``, ``bundle_uuid``, ``if eq .name "value"``, ``else`` and ``end``.

    ``{{-`` removes the white space before an action, ``-}}`` behind it.

    Raises:
        ValueError: An action is of another kind, a value is missing, or an ``end`` is.
    """
    parts: list[str] = []
    shown = [True]  # one entry for each open condition
    rest = text
    while (match := _ACTION.search(rest)) is not None:
        before, trims_before, action, trims_after, after = match.groups()
        if shown[-1]:
            parts.append(rest[: match.start()] + ("" if trims_before else before))
        parts.append(_carried_out(action, values, shown))
        rest = ("" if trims_after else after) + rest[match.end() :]
    if len(shown) != 1:
        raise ValueError("a condition has no end")
    return "".join([*parts, rest])


def _carried_out(action: str, values: Mapping[str, str], shown: list[bool]) -> str:
    """Return the text of an action, and keep *shown*: is the text behind it shown."""
    if (condition := _CONDITION.fullmatch(action)) is not None:
        operator, name, value = condition.groups()
        shown.append(shown[-1] and (_value(name, values) == value) is (operator == "eq"))
        return ""
    if action == "else" and len(shown) > 1:
        shown[-1] = shown[-2] and not shown[-1]
        return ""
    if action == "end" and len(shown) > 1:
        shown.pop()
        return ""
    if not shown[-1]:
        return ""
    if action.startswith('"') and action.endswith('"'):
        return action[1:-1]
    if action.startswith("."):
        return _value(action[1:], values)
    if action == BUNDLE_UUID:  # a function of the Databricks CLI
        return _value(action, values)
    raise ValueError(f"unknown action {action!r}")


def _value(name: str, values: Mapping[str, str]) -> str:
    if name not in values:
        raise ValueError(f"no value {name!r}")
    return values[name]
