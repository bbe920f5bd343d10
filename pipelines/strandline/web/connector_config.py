"""The settings as Kafka Connect's tools read a configuration: one object of texts, without secrets. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, SecretStr

from strandline.plain_text import MASK, masked, printable_json
from strandline.settings.configuration import Settings


def connector_config(settings: Settings) -> dict[str, str]:
    """Return every setting that has a value, by its dotted name. Secrets are masked.

    Secrets are fields of a secret type, fields that are left out of a section's text, and logins in an address.
    """
    own = {"name": settings.source.name, "connector.class": "strandline"}
    return own | dict(_flat(settings))


def _flat(settings: Settings) -> Iterator[tuple[str, str]]:
    for name in Settings.model_fields:
        section = getattr(settings, name)
        if not isinstance(section, BaseModel):
            if name != "target":
                yield name, _text(section)
            continue
        values = section.model_dump(mode="json")
        for key, field in type(section).model_fields.items():
            value = getattr(section, key)
            if value is None:
                continue
            is_secret = isinstance(value, SecretStr) or (not field.repr and value)
            yield f"{name}.{field.alias or key}", MASK if is_secret else _text(values[key])


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else printable_json(value)
    return masked(text)
