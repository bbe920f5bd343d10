"""Errors of values: place, key, value and what is allowed, in one line. A value that may be secret is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from strandline.plain_text import masked
from strandline.settings.keys import ENV_PREFIX

Place = tuple[str, Mapping[str, Any]]
"""Name of a file, of the environment or of the options, and its settings, nested."""

OPTIONS: Final = "--set"
"""The user sees what was typed, and a log keeps it: its value is not repeated."""
ENVIRONMENT: Final = "environment"
_LONGEST: Final = 60
_SHOULD: Final = re.compile(r"^\w+ should (?P<what>.*)$")
_PLAIN: Final = (
    (r"be a valid dictionary or instance of \w+", "be a section with settings"),
    (r"be a valid dictionary", "be a map"),
    (r"be a valid (tuple|list)", "be a list"),
    (r"be a valid string", "be a text"),
    (r"be a valid integer.*", "be an integer"),
    (r"be a valid number.*", "be a number"),
    (r"be a valid boolean.*", "be true or false"),
)


def wrong_values(
    error: ValidationError, model: type[BaseModel], places: Sequence[Place], *, with_unknown_keys: bool
) -> Iterator[str]:
    """Yield one line for each wrong value.

    Args:
        places: From the one that overrides the others to the one that all others override.
    """
    for item in error.errors(include_input=False):
        if item["type"] == "extra_forbidden" and not with_unknown_keys:
            continue
        keys = tuple(map(str, item["loc"][:2]))
        key, message = ".".join(map(str, item["loc"])), item["msg"].removeprefix("Value error, ")
        should = _SHOULD.match(message)
        if should is None:
            yield f"{key}: {message}"
            continue
        what = next((plain for part, plain in _PLAIN if re.fullmatch(part, should["what"])), should["what"])
        name, value = next((match for place in places if (match := _at(place, keys)) is not None), ("", None))
        is_hidden = value is None or name == OPTIONS or _may_be_secret(model, keys)
        shown = "the value" if is_hidden else _shown(value)
        yield f"{f'{name}: ' if name else ''}{key}: {shown} should {what}"


def _at(place: Place, keys: tuple[str, ...]) -> tuple[str, Any] | None:
    """Return the name of *place* and its value of *keys*. None: it does not set them."""
    name, value = place
    for key in keys:
        if not isinstance(value, Mapping) or key not in value:
            return None
        value = value[key]
    return f"{name} {ENV_PREFIX}{'__'.join(keys).upper()}" if name == ENVIRONMENT else name, value


def _may_be_secret(model: type[BaseModel], keys: tuple[str, ...]) -> bool:
    """Return True for a secret, a map that may hold one, and a text in the place of a section."""
    if keys[0] not in model.model_fields:
        return True
    section = model.model_fields[keys[0]].annotation
    if not (isinstance(section, type) and issubclass(section, BaseModel)):
        return False
    if len(keys) == 1:
        return True
    fields = {field.alias or name: field for name, field in section.model_fields.items()}
    field = fields.get(keys[1])
    return field is None or not field.repr or "Secret" in str(field.annotation)


def _shown(value: Any) -> str:
    text = masked(repr(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
