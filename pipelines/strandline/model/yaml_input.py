"""YAML parser with two stricter rules: only true and false are booleans (NO and ON are text); keys are unique."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

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


def parse_yaml(text: str, loader: type[UniqueKeys] = _Loader, *, may_quote: bool = True) -> Any:
    """Parse one YAML document. Pure.

    Args:
        may_quote: Allow errors to quote a value of *text*. False: values may be secrets. Keys are always quoted.

    Raises:
        ValueError: *text* is invalid. The message is one line with problem and line number.
    """
    try:
        value = yaml.load(text, loader)  # why: a SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        told = may_quote or isinstance(error, _KeyTwice)
        raise ValueError(
            f"not YAML{where}: {(told and getattr(error, 'problem', None)) or 'it cannot be read'}"
        ) from None
    except Exception:  # noqa: BLE001  # why: constructors of explicit tags raise various errors (!!int x, !!bool x)
        raise ValueError("not YAML: a value does not fit its tag, or is nested too deeply") from None
    if _holds_itself(value):
        raise ValueError("not YAML that means something: an alias stands inside what it names")
    return value


def _holds_itself(value: Any) -> bool:
    """Return True if a list or mapping contains itself through an alias. A walk over it would never end."""
    open_, done = set[int](), set[int]()
    path: list[tuple[Any, Iterator[Any]]] = [(value, _parts(value))]
    open_.add(id(value))
    while path:
        holder, parts = path[-1]
        part = next(parts, None)
        if part is None:
            path.pop()
            open_.discard(id(holder))
            done.add(id(holder))
        elif id(part) in open_:
            return True
        elif id(part) not in done:
            open_.add(id(part))
            path.append((part, _parts(part)))
    return False


def _parts(value: Any) -> Iterator[Any]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (each for each in inner if isinstance(each, dict | list))
