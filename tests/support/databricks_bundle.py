"""A Databricks bundle as the CLI would deploy it: a target's overrides merged, its references resolved."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

REFERENCE = re.compile(r"\$\{([^}]+)\}")
_KEYS = {"tasks": "task_key", "job_clusters": "job_cluster_key", "parameters": "name"}
"""Lists whose entries the CLI merges by a key."""


def texts(node: Any) -> Iterator[str]:
    """Every string below *node*, keys included."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from texts(key)
            yield from texts(value)
    elif isinstance(node, list):
        for value in node:
            yield from texts(value)
    elif isinstance(node, str):
        yield node


def merged(base: Any, over: Any, key: str = "") -> Any:
    """*base* with *over* on top, as the CLI merges a target's overrides."""
    if isinstance(base, dict) and isinstance(over, dict):
        return base | {name: merged(base[name], value, name) if name in base else value for name, value in over.items()}
    if isinstance(base, list) and isinstance(over, list) and (by := _KEYS.get(key)):
        entries = {entry[by]: entry for entry in base}
        for entry in over:
            entries[entry[by]] = merged(entries.get(entry[by], {}), entry)
        return list(entries.values())
    return over


@dataclass(frozen=True)
class Bundle:
    """The files of a bundle, by path, and one target."""

    files: Mapping[str, str]
    target: str
    folder: str = "/Workspace/files"
    values: Mapping[str, Any] = field(default_factory=dict)
    """Variables as `--var` sets them."""

    @cached_property
    def root(self) -> dict[str, Any]:
        found: dict[str, Any] = yaml.safe_load(self.files["databricks.yml"])
        return found

    @cached_property
    def resource_files(self) -> dict[str, dict[str, Any]]:
        return {name: yaml.safe_load(text) for name, text in self.files.items() if name.startswith("resources/")}

    @cached_property
    def raw(self) -> dict[str, dict[str, Any]]:
        """Resources by kind and key, with the target's overrides and with references."""
        found: dict[str, Any] = {}
        for content in self.resource_files.values():
            found = merged(found, content["resources"])
        return merged(found, self.chosen.get("resources", {}))  # type: ignore[no-any-return]  # why: YAML

    @cached_property
    def chosen(self) -> dict[str, Any]:
        found: dict[str, Any] = self.root["targets"][self.target]
        return found

    @cached_property
    def resources(self) -> dict[str, dict[str, Any]]:
        """Resources with every reference resolved."""
        return self.resolved(self.raw)  # type: ignore[no-any-return]  # why: YAML

    def resolved(self, node: Any) -> Any:
        if isinstance(node, dict):
            return {key: self.resolved(value) for key, value in node.items()}
        if isinstance(node, list):
            return [self.resolved(value) for value in node]
        if not isinstance(node, str):
            return node
        if (whole := REFERENCE.fullmatch(node)) is not None:
            return self.resolved(self._value(whole[1]))
        return REFERENCE.sub(lambda match: str(self.resolved(self._value(match[1]))), node)

    def _value(self, path: str) -> Any:
        if path.startswith("var."):
            name = path.removeprefix("var.")
            declared = self.root["variables"][name]
            found = {"default": f"id-of-{name}"} | declared | {"default": declared.get("default", f"id-of-{name}")}
            return {**{name: found["default"]}, **self.chosen.get("variables", {}), **self.values}[name]
        if path.startswith("resources."):
            found: Any = self.raw
            for part in path.removeprefix("resources.").split("."):
                found = found[part]
            return found
        return {
            "bundle.name": self.root["bundle"]["name"],
            "bundle.target": self.target,
            "workspace.file_path": self.folder,
            "workspace.current_user.userName": "alice.b@example.com",
            "workspace.current_user.short_name": "alice_b",
        }[path]

    @property
    def jobs(self) -> dict[str, dict[str, Any]]:
        return self.resources["jobs"]

    def parameters(self, job: str, task: str) -> list[str]:
        """Parameters of a wheel task, with the defaults of the job's parameters."""
        defaults = {each["name"]: each["default"] for each in self.jobs[job].get("parameters", [])}
        (found,) = [each for each in self.jobs[job]["tasks"] if each["task_key"] == task]
        given: list[str] = found["python_wheel_task"]["parameters"]
        return [re.sub(r"\{\{job\.parameters\.(\w+)\}\}", lambda match: defaults[match[1]], text) for text in given]


def files_below(folder: Path, *patterns: str) -> dict[str, str]:
    found = sorted(file for pattern in patterns for file in folder.glob(pattern))
    return {file.relative_to(folder).as_posix(): file.read_text(encoding="utf-8") for file in found}
