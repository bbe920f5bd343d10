"""Folders of gold and quality: relative paths begin at the folder that holds the configuration folder.

Without a setting, SQL files and suites are in folders of the configuration folder, if there are any.

A job of Databricks, and a service, run in another working directory than the user's shell.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

_FOLDERS: Final = (("gold", "sql_dir"), ("gold", "tests_dir"), ("quality", "suites_dir"))
_DEFAULTS: Final = (("gold", "sql_dir", "*.sql"), ("quality", "suites_dir", "*.yml"))


def project_of(conf: Path) -> Path:
    """Return the folder that holds *conf*. It is relative if *conf* is."""
    return conf.parent if conf.name not in ("", "..") else conf.resolve().parent


def project_above(folder: Path) -> Path:
    """Return the nearest of *folder* and its parents with a ``conf/base.yml``; *folder* itself if none has one."""
    return next((place for place in (folder, *folder.parents) if (place / "conf" / "base.yml").is_file()), folder)


def with_project_folders(sections: dict[str, Any], conf: Path) -> dict[str, Any]:
    """Return *sections* with the paths of `_FOLDERS` below the project's folder. Absolute paths stay.

    A missing or null ``sql_dir`` or ``suites_dir`` becomes ``<conf>/gold`` or ``<conf>/quality``, if there
    are files.

    I/O: lists these two folders; writes nothing.
    """
    sections_with_folders = dict(sections)
    for section, key in _FOLDERS:
        values = sections_with_folders.get(section)
        if isinstance(values, dict) and isinstance(values.get(key), str) and values[key]:
            sections_with_folders[section] = {**values, key: str(project_of(conf) / values[key])}
    for section, key, files in _DEFAULTS:
        values = sections_with_folders.get(section) or {}
        if isinstance(values, dict) and values.get(key) is None and any((conf / section).glob(files)):
            sections_with_folders[section] = {**values, key: str(conf / section)}
    return sections_with_folders
