"""Files of a new project: settings, a first gold view with its test, checks, and a Databricks bundle.

`databricks bundle init` renders the same files (`bundle/databricks_template_schema.json`).
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from strandline.errors import ConfigurationError
from strandline.model.tables import safe_name
from strandline.project.go_template import BUNDLE_UUID, render

BUNDLE: Final = Path(__file__).with_name("bundle")
_TEMPLATE: Final = BUNDLE / "template"
_SUFFIX: Final = ".tmpl"
_OF_DATABRICKS: Final = (
    "databricks.yml",
    "resources/",
    ".github/",
    "conf/dev.yml",
    "conf/staging.yml",
    "conf/prod.yml",
)
_BY_SPARK: Final = ("conf/gold/", "conf/quality/")
URI_FILE: Final = ".mongodb-uri"
"""File of the connection string, in the project's folder. Only its owner may read it, and Git ignores it."""
_LOCAL: Final = "conf/local.yml"
_NAME_LENGTH: Final = 63
Compute = Literal["serverless", "classic"]
Cloud = Literal["aws", "azure", "gcp"]
_HOSTS: Final[Mapping[str, Cloud]] = {".azuredatabricks.net": "azure", ".gcp.databricks.com": "gcp"}


@dataclass(frozen=True)
class Project:
    """Answers that the files depend on."""

    name: str = "shop"
    """Name of the source."""
    database: str = "shop"
    collection: str = "orders"
    """Silver table of the first gold view and the first checks: `table_name` of a collection."""
    root: str = "lake"
    """Folder or URI of the lake of target ``local``."""
    catalog: str = ""
    """Catalog on Databricks. Empty: no bundle is written."""
    compute: Compute = "serverless"
    """Compute of silver, gold and maintain."""
    host: str = ""
    """Address of the workspace. Empty: as the profile of the Databricks CLI says."""
    cloud: Cloud = "aws"
    """Cloud of the workspace."""
    warehouse: str = ""
    """Name of the SQL warehouse of the alert and the dashboard. Empty: neither is written."""


def table_name(collection: str) -> str:
    """Return the name of the silver table of *collection*, whose name is as MongoDB has it."""
    return safe_name(collection)


def source_name(database: str) -> str:
    """Return a name for the source that captures *database*."""
    words = re.sub("[^a-z0-9]+", "_", database.lower()).strip("_") or "mongo"
    return (words if words[0].isalpha() else f"db_{words}")[:_NAME_LENGTH]


def cloud_of(host: str) -> Cloud:
    """Return the cloud of a workspace, by the name of its host."""
    return next((cloud for end, cloud in _HOSTS.items() if host.endswith(end)), "aws")


def files_of(project: Project, bundle_uuid: str | None = None) -> dict[str, str]:
    """Return the content of each file, by its path. I/O: reads the template.

    Args:
        bundle_uuid: Identity of the Databricks bundle. None: a new one.

    Raises:
        ConfigurationError: An answer has a character that a name may not have.
    """
    _check(project)
    values: Mapping[str, str] = {
        BUNDLE_UUID: bundle_uuid or str(uuid.uuid4()),
        **{name: str(value) for name, value in vars(project).items()},
    }
    rendered = {}
    for template in sorted(path for path in _TEMPLATE.rglob("*") if path.is_file()):
        name = render(template.relative_to(_TEMPLATE).as_posix().removesuffix(_SUFFIX), values)
        if project.catalog or not name.startswith(_OF_DATABRICKS):
            rendered[name] = render(template.read_text(encoding="utf-8"), values)
    return {name: text for name, text in rendered.items() if text.strip()}


def write_project(
    folder: Path, project: Project, *, uri: str | None = None, with_spark: bool = True
) -> tuple[list[str], list[str]]:
    """Write the files that are not there yet. Return the paths that were written, and the paths that were there.

    I/O: creates *folder* and the files. No file is ever overwritten.

    Args:
        uri: Connection string, which gets a file of its own if ``conf/local.yml`` is new. None: it is elsewhere.
        with_spark: False: no gold and no checks, because only Spark makes them.

    Raises:
        ConfigurationError: As `files_of`, or a file cannot be written. Files that were written before it stay.
    """
    written, existing = [], []
    files = {name: text for name, text in files_of(project).items() if with_spark or not name.startswith(_BY_SPARK)}
    if uri is not None and not (folder / _LOCAL).exists():
        files[_LOCAL] += f"source:\n  uri_file: {URI_FILE}\n"
        files[URI_FILE] = f"{uri}\n"
    for name, content in files.items():
        file = folder / name
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with open(file, "x", encoding="utf-8", opener=_for_its_owner if name == URI_FILE else None) as target:
                target.write(content)
            written.append(name)
        except FileExistsError:
            existing.append(name)
        except OSError as error:
            raise ConfigurationError(
                f"{file} cannot be written ({error.strerror})", next_step="choose another folder"
            ) from error
    return written, existing


def _for_its_owner(file: str, flags: int) -> int:
    return os.open(file, flags, 0o600)


def _check(project: Project) -> None:
    """Check the answers by the patterns of the template's schema."""
    schema: dict[str, dict[str, Any]] = json.loads((BUNDLE / "databricks_template_schema.json").read_text("utf-8"))[
        "properties"
    ]
    for name, value in vars(project).items():
        pattern, choices = schema[name].get("pattern"), schema[name].get("enum")
        if name == "catalog" and not value:
            continue
        if pattern and not re.fullmatch(pattern, value):
            raise ConfigurationError(
                f"{name} {value!r} has a character that cannot be used here",
                next_step=str(schema[name]["pattern_match_failure_message"]),
            )
        if choices and value not in choices:
            raise ConfigurationError(f"{name} {value!r} is unknown", next_step=f"one of {', '.join(choices)}")
        if any(character in value for character in "\n\"'"):
            raise ConfigurationError(f"{name} {value!r} has a character that cannot be used here")
