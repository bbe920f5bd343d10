"""One configuration file as nested text.

A value in a file is text, as it is in the environment, and the settings' model gives it its type: YAML's own guesses (``no`` is false,
``12:30`` is 750, ``1.10`` is 1.1, an unquoted time is an object) never come between.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from pipelines.model.yaml_input import UniqueKeys, parse_yaml


class _TextLoader(UniqueKeys):
    """Every plain value but null is text."""

    yaml_implicit_resolvers = {  # noqa: RUF012  # why: the base class declares it so
        first: [resolver for resolver in resolvers if resolver[0] == "tag:yaml.org,2002:null"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            key.tag = "tag:yaml.org,2002:str"
        return super().construct_mapping(node, deep)


def read_sections(file: Path, problems: list[str]) -> dict[str, Any]:
    """I/O: the sections of *file*; those with nothing under them are left out. What is wrong is added to *problems*, without a value."""
    try:
        content = parse_yaml(file.read_text(encoding="utf-8-sig"), _TextLoader, may_quote=False)
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"{file}: cannot be read ({type(error).__name__})")
        return {}
    except ValueError as error:
        problems.append(f"{file}: {error}")
        return {}
    if content is None:
        return {}
    if not isinstance(content, dict):
        problems.append(f"{file}: a mapping is expected at the top level")
        return {}
    return {key: value for key, value in content.items() if value is not None}
