"""``strandline init``: write the files of a new project."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final, cast

import typer

from strandline.commands.terminal import out
from strandline.project.scaffold import Compute, Project, write_project

_QUESTIONS: Final = {
    "name": "Name of the source",
    "database": "MongoDB database to capture",
    "collection": "One of its collections, for the first gold view",
    "lake": "Lake: a folder, s3://bucket/path, or catalog:NAME of Unity Catalog",
    "compute": "Compute of silver, gold and maintain on Databricks: serverless or classic",
}
_CATALOG: Final = "catalog:"


def init(
    folder: Annotated[Path, typer.Argument(help="Folder of the project. Default: the working directory.")] = Path(),
    name: Annotated[str | None, typer.Option(help="Name of the source. Default: shop.")] = None,
    database: Annotated[str | None, typer.Option(help="MongoDB database to capture. Default: the name.")] = None,
    collection: Annotated[
        str | None, typer.Option(help="Collection of the first gold view and the first checks. Default: orders.")
    ] = None,
    lake: Annotated[
        str | None, typer.Option(help="A folder, s3://bucket/path, or catalog:NAME of Unity Catalog. Default: lake.")
    ] = None,
    compute: Annotated[
        str | None, typer.Option(help="On Databricks: serverless or classic. Default: serverless.")
    ] = None,
) -> None:
    """Write the files of a new project. A terminal is asked for what no option says. No file is overwritten."""
    answers = {"name": name, "database": database, "collection": collection, "lake": lake, "compute": compute}
    written, existing = write_project(folder, _project(answers))
    for path in written:
        out.print(f"written  {folder / path}")
    for path in existing:
        out.print(f"kept     {folder / path}, which was there already")
    out.print(f"next     cd {folder} && strandline doctor --offline")


def _project(answers: dict[str, str | None]) -> Project:
    defaults = Project()
    name = _answer(answers, "name", defaults.name)
    database = _answer(answers, "database", name)
    collection = _answer(answers, "collection", defaults.collection)
    lake = _answer(answers, "lake", defaults.root)
    catalog = lake.removeprefix(_CATALOG) if lake.startswith(_CATALOG) else ""
    compute = _answer(answers, "compute", defaults.compute) if catalog else defaults.compute
    root = defaults.root if catalog else lake
    return Project(name, database, collection, root, catalog, cast(Compute, compute))


def _answer(answers: dict[str, str | None], key: str, default: str) -> str:
    answer = answers[key]
    if answer is None and sys.stdin.isatty():
        answer = typer.prompt(_QUESTIONS[key], default=default)
    return answer or default
