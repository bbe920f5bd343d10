"""Folders of gold and quality: relative paths begin at the folder that holds the configuration folder.

A job of Databricks, and a service, run in another working directory than the user's shell.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

_FOLDERS: Final = (("gold", "sql_dir"), ("gold", "tests_dir"), ("quality", "suites_dir"))


def project_of(conf: Path) -> Path:
    """Return the folder that holds *conf*. It is relative if *conf* is."""
    return conf.parent if conf.name not in ("", "..") else conf.resolve().parent


def with_project_folders(sections: dict[str, Any], conf: Path) -> dict[str, Any]:
    """Return *sections* with the paths of `_FOLDERS` below the project's folder. Absolute paths stay."""
    found = dict(sections)
    for section, key in _FOLDERS:
        values = found.get(section)
        if isinstance(values, dict) and isinstance(values.get(key), str) and values[key]:
            found[section] = {**values, key: str(project_of(conf) / values[key])}
    return found
