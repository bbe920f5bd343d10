"""Reader of one configuration file. Every value is text, as in the environment.

The settings model converts the text to its type. YAML's own conversions (``no`` is false, ``12:30`` is 750, ``1.10`` is
1.1, an unquoted time is an object) are switched off.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from strandline.model.yaml_input import UniqueKeys, parse_yaml


class _TextLoader(UniqueKeys):
    """YAML loader that reads every plain value except null as text."""

    yaml_implicit_resolvers = {  # noqa: RUF012  # why: the base class declares it so
        first: [resolver for resolver in resolvers if resolver[0] == "tag:yaml.org,2002:null"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            key.tag = "tag:yaml.org,2002:str"
        return super().construct_mapping(node, deep)


def read_sections(file: Path, problems: list[str]) -> dict[str, Any]:
    """I/O: reads *file*; writes nothing. Return its sections; empty sections are left out.

    Problems are appended to *problems*, without the values of the file.
    """
    try:
        content = parse_yaml(file.read_text(encoding="utf-8-sig"), _TextLoader)
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
