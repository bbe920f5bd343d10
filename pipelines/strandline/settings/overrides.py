"""Settings that are given as assignments: ``--set KEY=VALUE`` on the command line, or options of a data source."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from strandline.errors import ConfigurationError
from strandline.settings.keys import unknown_keys

_EXAMPLE = "for example --set lake.catalog=main; strandline explain settings lists every key"


def overrides_of(assignments: Iterable[str], model: type[BaseModel], word: str = "--set") -> dict[str, Any]:
    """Return the nested settings of *assignments*. The last assignment of a key holds.

    A value is text, as in a file. ``null`` removes a value. The value of a map is a JSON object, or one entry is named
    behind the map's key: ``spark.conf.spark.sql.shuffle.partitions=8``.

    Args:
        word: Name of an assignment, for the error.

    Raises:
        ConfigurationError: A text is no assignment, or no setting has the key. The message does not quote the value.
    """
    nested: dict[str, Any] = {}
    for assignment in assignments:
        key, sign, value = assignment.partition("=")
        key = key.strip()
        section, *rest = _path(key, model)
        if sign and not rest and _is_value(section, model):
            nested[section] = _value(f"{word} {key}", value)
            continue
        if not sign or not rest:
            raise ConfigurationError(f"{word} {key}: KEY=VALUE is expected", next_step=_EXAMPLE)
        if problems := unknown_keys({section: {rest[0]: None}}, model):
            raise ConfigurationError(
                f"{word} {key}: {problems[0]}", next_step="strandline explain settings lists every key"
            )
        values = nested.setdefault(section, {})
        if len(rest) == 1:
            values[rest[0]] = _value(f"{word} {key}", value)
        else:
            entries = values.get(rest[0])
            values[rest[0]] = {**(entries if isinstance(entries, dict) else {}), rest[1]: value}
    return nested


def _section(key: str, model: type[BaseModel]) -> type[BaseModel] | None:
    """Return the section that *key* names. None: there is none."""
    field = model.model_fields.get(key)
    kind = field.annotation if field is not None else None
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _is_value(key: str, model: type[BaseModel]) -> bool:
    """Return True for a setting outside of all sections."""
    return _section(key, model) is None and not unknown_keys({key: None}, model)


def _path(key: str, model: type[BaseModel]) -> list[str]:
    """Return the parts of *key*. The rest behind section and setting is one key of a map, with its dots."""
    section, _, rest = key.partition(".")
    setting, dot, entry = rest.partition(".")
    kind = _section(section, model)
    is_nested = kind is not None and setting in kind.model_fields
    return [section, setting, entry] if dot and is_nested else [section, *([rest] if rest else [])]


def _value(name: str, text: str) -> Any:
    if text == "null":
        return None
    if not text.startswith("{"):
        return text
    try:
        return json.loads(text)
    except ValueError:
        raise ConfigurationError(f"{name}: the value is not valid JSON", next_step=_EXAMPLE) from None
