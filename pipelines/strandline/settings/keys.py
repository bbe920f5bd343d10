"""Check of setting keys and environment variables. A misspelt setting must not be ignored."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_settings import BaseSettings

ENV_PREFIX = "STRANDLINE_"
_OPTIONS = {f"{ENV_PREFIX}{name}" for name in ("TARGET", "CONF")}
"""Variables that the options ``--target`` and ``--conf`` read."""
# https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
_KUBERNETES_SERVICE = re.compile(
    rf"{ENV_PREFIX}(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


def unknown_keys(content: dict[str, Any], model: type[BaseModel], prefix: str = "") -> list[str]:
    """Return one message for each key of the nested *content* that *model* lacks, with the nearest valid key."""
    valid = _keys(model)
    problems = []
    for key, value in content.items():
        name = str(key)
        if name not in valid:
            problems.append(f"unknown key {prefix}{name}{nearest(name, list(valid))}")
        elif (section := valid[name]) is not None and isinstance(value, dict):
            problems += unknown_keys(value, section, f"{prefix}{name}.")
    return problems


def unknown_variables(environ: Iterable[str], model: type[BaseModel]) -> list[str]:
    """Return one message for each unknown variable: pydantic-settings ignores an unknown top-level one silently.

    Variables that Kubernetes sets for a Service named ``strandline`` are accepted.
    """
    problems = []
    for variable in environ:
        if not variable.startswith(ENV_PREFIX) or variable in _OPTIONS or _KUBERNETES_SERVICE.fullmatch(variable):
            continue
        keys = variable[len(ENV_PREFIX) :].lower().split("__")
        nested: dict[str, Any] = {}
        for key in reversed(keys):
            nested = {key: nested}
        unknown = unknown_keys(nested, model)
        if unknown and (meant := _with_all_underscores(variable, model)) is not None:
            unknown = [f"unknown key {'.'.join(keys)} (did you mean {meant}?)"]
        problems += [f"environment {variable}: {text}" for text in unknown]
    return problems


def not_json(environ: Mapping[str, str], model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """Yield each variable of a section or a map that is no JSON, and what it should be. The value is not quoted."""
    sections = ((name, section) for name, section in _keys(model).items() if section is not None)
    for name, section in sections:
        fields = section.model_fields
        maps = [f"{name}__{key}" for key, field in fields.items() if "dict[" in str(field.annotation)]
        for variable in (f"{ENV_PREFIX}{key}".upper() for key in (name, *maps)):
            if (value := environ.get(variable)) and not _is_json(value):
                yield variable, 'the value should be valid JSON, such as {"key": "value"}'


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _with_all_underscores(variable: str, model: type[BaseModel]) -> str | None:
    """Return the variable of a setting that differs from *variable* in the number of underscores only."""
    sections = ((name, section) for name, section in _keys(model).items() if section is not None)
    names = (f"{ENV_PREFIX}{name}__{key}".upper() for name, section in sections for key in _keys(section))
    return next((name for name in names if re.sub("_+", "_", name) == re.sub("_+", "_", variable)), None)


def _keys(model: type[BaseModel]) -> dict[str, type[BaseModel] | None]:
    """Return the valid keys of a section, each with its nested section. None: the key holds a value."""
    fields: dict[str, type[BaseModel] | None] = {}
    for name, field in model.model_fields.items():
        nested = (
            field.annotation if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel) else None
        )
        fields[field.alias or name] = nested
    fields.pop(
        "target" if issubclass(model, BaseSettings) else "", None
    )  # the target chooses the files, so no file can set it
    return fields


def nearest(key: str, valid: list[str]) -> str:
    """Return the end of an error message: the valid key nearest to *key*, or all of *valid* if none is similar."""
    match = difflib.get_close_matches(key, valid, n=1, cutoff=0.5)
    return f" (did you mean {match[0]}?)" if match else f" (valid: {', '.join(sorted(valid)) or 'none'})"
