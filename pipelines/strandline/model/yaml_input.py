"""YAML parser with two stricter rules: only true and false are booleans (NO and ON are text); keys are unique."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml


class _KeyTwice(yaml.MarkedYAMLError):
    """A mapping holds a key twice. YAML would silently use the last value."""


class UniqueKeys(yaml.SafeLoader):
    """YAML loader that refuses duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise _KeyTwice(problem=f"key {key.value} stands twice", problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


class _Loader(UniqueKeys):
    pass


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|false|False)$"), list("tTfF"))


_CAUSES: Final = (
    (r"character '\\t'", "a tab: indent with blanks"),
    (r"found unexpected end of stream", "a quote that is not closed"),
    (r"expected ',' or '\]'", "a list that begins with [ and is not closed"),
    (r"expected ',' or '}'", "a map that begins with { and is not closed"),
    (r"unknown escape character", "a backslash in double quotes: use single quotes"),
    (r"alias|alphabetic or numeric", "a value that begins with * or &: put it in quotes"),
    (r"\btag\b", "a value that begins with !: put it in quotes"),
    (r"cannot start any token|node content", "a value that begins with a character of YAML: put it in quotes"),
    (r"chomping", "text behind | or >: put the value in quotes"),
    (r"sequence entries|mapping keys", "a - or ? behind the colon: put the value in quotes"),
    (r"another document", "a second document"),
    (r"could not find expected ':'", "a key without a colon"),
    (r"<block end>|<document start>", "an indentation that does not fit the lines above"),
    (r"special characters", "a control character"),
    (r"unhashable key", "found unhashable key: a key that is a list or a map"),
)
"""Parts of PyYAML's messages, and the cause in our words. PyYAML's own quote values, which may be secrets."""
_NOT_CLOSED: Final = re.compile(r"end of stream|expected ',' or")
_KEY: Final = re.compile(r"(\s*)(?:- +)?([A-Za-z_][\w-]*):(?:\s|$)")


def parse_yaml(text: str, loader: type[UniqueKeys] = _Loader) -> Any:
    """Parse one YAML document. Pure.

    Raises:
        ValueError: *text* is invalid. The message is one line with line number, key and cause. It holds no value.
    """
    try:
        value = yaml.load(text, loader)  # why: a SafeLoader
    except yaml.YAMLError as error:
        raise ValueError(_syntax_error(error, text.splitlines())) from None
    except Exception:  # noqa: BLE001  # why: constructors of explicit tags raise various errors (!!int x, !!bool x)
        raise ValueError("not YAML: a value does not fit its tag, or is nested too deeply") from None
    if _holds_itself(value):
        raise ValueError("not YAML that means something: an alias stands inside what it names")
    return value


def _syntax_error(error: yaml.YAMLError, lines: list[str]) -> str:
    """Return line, key and cause of an error. What is not closed is reported where it begins."""
    problem, mark = str(getattr(error, "problem", None) or error), getattr(error, "problem_mark", None)
    if _NOT_CLOSED.search(problem):
        mark = getattr(error, "context_mark", None) or mark
    if isinstance(error, _KeyTwice):
        cause = problem
    elif mark is not None and "mapping values are not allowed" in problem:
        cause = _misplaced_colon(lines, mark.line, mark.column)
    else:
        cause = next((cause for part, cause in _CAUSES if re.search(part, problem)), "it cannot be read")
    if mark is None:
        return f"not YAML: {cause}"
    key = _key_at(lines, mark.line)
    return f"not YAML at line {mark.line + 1}: {cause}{f' (at {key})' if key else ''}"


def _misplaced_colon(lines: list[str], line: int, column: int) -> str:
    if re.search(r":\s", lines[line][:column]):
        return "a second colon: put the value in quotes"
    above = next((text for text in reversed(lines[:line]) if text.strip()), "")
    if not re.search(r":(\s|$)", above):
        return "the line above has no colon with a blank behind it"
    return "an indentation below a key that has a value already"


def _key_at(lines: list[str], line: int) -> str:
    """Return the dotted key at *line*, or above it. Empty: there is none."""
    keys: list[str] = []
    depth: int | None = None
    for text in reversed(lines[: line + 1]):
        match = _KEY.match(text)
        if match and (depth is None or len(match[1]) < depth):
            keys.insert(0, match[2])
            depth = len(match[1])
    return ".".join(keys)


def _holds_itself(value: Any) -> bool:
    """Return True if a list or mapping contains itself through an alias. A walk over it would never end."""
    open_, finished_parts = set[int](), set[int]()
    path: list[tuple[Any, Iterator[Any]]] = [(value, _parts(value))]
    open_.add(id(value))
    while path:
        holder, parts = path[-1]
        part = next(parts, None)
        if part is None:
            path.pop()
            open_.discard(id(holder))
            finished_parts.add(id(holder))
        elif id(part) in open_:
            return True
        elif id(part) not in finished_parts:
            open_.add(id(part))
            path.append((part, _parts(part)))
    return False


def _parts(value: Any) -> Iterator[Any]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (part for part in inner if isinstance(part, dict | list))
