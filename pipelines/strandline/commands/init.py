"""``strandline init``: test a connection, list what it leads to, and write the files of a new project."""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from strandline.commands.terminal import as_table, out
from strandline.errors import ConfigurationError, StrandlineError, install_command
from strandline.model.tables import quoted
from strandline.project.scaffold import (
    URI_FILE,
    Cloud,
    Compute,
    Project,
    cloud_of,
    source_name,
    table_name,
    write_project,
)

if TYPE_CHECKING:
    from strandline.source.overview import SourceOverview

_QUESTIONS: Final = {
    "name": "Name of the source",
    "database": "MongoDB database to capture",
    "collection": "One of its collections, for the first gold view",
    "lake": "Lake: a folder, s3://bucket/path, or catalog:NAME of Unity Catalog",
    "host": "Address of the workspace, https://… (empty: as the CLI's profile says)",
    "cloud": "Cloud of the workspace: aws, azure or gcp",
    "warehouse": "Name of a SQL warehouse, for an alert and a dashboard (empty: without both)",
    "compute": "Compute of silver, gold and maintain on Databricks: serverless or classic",
}
_CATALOG: Final = "catalog:"
_LISTED: Final = 20
_VARIABLES: Final = ["STRANDLINE_SOURCE__URI", "MONGODB_URI"]
"""Variables that every command reads. A connection string that is there gets no file."""

Collection = Annotated[
    str | None,
    typer.Option(help="Collection of the first gold view and the first checks. Default: the largest, or orders."),
]
Lake = Annotated[
    str | None, typer.Option(help="A folder, s3://bucket/path, or catalog:NAME of Unity Catalog. Default: lake.")
]
Host = Annotated[
    str | None, typer.Option(help="On Databricks: address of the workspace. Default: as the CLI's profile says.")
]
CloudName = Annotated[str | None, typer.Option(help="On Databricks: aws, azure or gcp. Default: by the host, or aws.")]
Warehouse = Annotated[
    str | None,
    typer.Option(help="On Databricks: SQL warehouse of an alert and a dashboard. Default: without both."),
]
ComputeKind = Annotated[str | None, typer.Option(help="On Databricks: serverless or classic. Default: serverless.")]


def init(
    folder: Annotated[Path, typer.Argument(help="Folder of the project. Default: the working directory.")] = Path(),
    uri: Annotated[
        str | None,
        typer.Option(
            envvar=_VARIABLES,
            show_envvar=False,
            help="MongoDB connection string, which is tested at once. Other users of the machine see options: the "
            f"variable {_VARIABLES[0]} and the question hide it.",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the source. Default: by the database.")] = None,
    database: Annotated[
        str | None, typer.Option(help="MongoDB database to capture. Default: the URI's, or the only one.")
    ] = None,
    collection: Collection = None,
    lake: Lake = None,
    databricks: Annotated[
        bool, typer.Option("--databricks", help="Write a Databricks bundle. The lake is then catalog:main by default.")
    ] = False,
    host: Host = None,
    cloud: CloudName = None,
    warehouse: Warehouse = None,
    compute: ComputeKind = None,
) -> None:
    """Test the connection, list what it leads to, and write the files of a new project.

    A terminal is asked for what no option says. Without a connection string the files are written untested. No file is
    overwritten.
    """
    source, uri = _tested(uri, database)
    answers = {"name": name, "database": database, "collection": collection, "lake": lake}
    answers |= {"host": host, "cloud": cloud, "warehouse": warehouse, "compute": compute}
    chosen = _database(answers, source)
    if source is not None and source.denied and chosen not in source.databases:
        source, uri = _tested(uri, chosen)
    project, shown = _project(answers, source, chosen, f"{_CATALOG}main" if databricks else Project().root)
    _write(folder, project, uri)
    has_uri = _is_in_environment(uri) or (folder / URI_FILE).exists()
    for line in _next(folder, project, shown, has_uri=has_uri):
        out.print(line, soft_wrap=True)


def _write(folder: Path, project: Project, uri: str | None) -> None:
    """Write the files and say which. Without PySpark a project on a laptop has no gold and no checks."""
    with_spark = bool(project.catalog) or find_spec("pyspark") is not None
    own_uri = None if _is_in_environment(uri) else uri
    written, existing = write_project(folder, project, uri=own_uri, with_spark=with_spark)
    for path in written:
        out.print(f"written  {folder / path}", soft_wrap=True)
    for path in existing:
        out.print(f"kept     {folder / path}, which was there already", soft_wrap=True)
    if not with_spark:
        again = f"{install_command('spark')}, then init again"
        out.print(f"left out a gold view and checks, which need Spark: {again}", soft_wrap=True)


def _next(folder: Path, project: Project, collection: str, *, has_uri: bool) -> list[str]:
    """Return the lines that name the next commands."""
    change = [] if folder.resolve() == Path.cwd() else [f"cd {shlex.quote(str(folder))}"]
    install = [install_command("spark")] if project.catalog and not find_spec("pyspark") else []
    export = [] if has_uri else [f"export {_VARIABLES[0]}='mongodb://user:password@host:27017/?replicaSet=rs0'"]
    name = collection if re.fullmatch(r"[\w.-]+", collection) else project.collection
    quoted_name = name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else quoted(name)
    query = f"strandline sql 'select * from silver.{quoted_name} limit 10'"
    first, *others = [*install, *change, *export, "strandline run --once", query]
    return [f"next     {first}", *(f"         {command}" for command in others)]


def _is_in_environment(uri: str | None) -> bool:
    return uri is not None and uri in map(os.environ.get, _VARIABLES)


def _tested(uri: str | None, database: str | None) -> tuple[SourceOverview | None, str | None]:
    """Return what the connection string leads to, and the string. A terminal may correct it. None: there is none."""
    from strandline.source.overview import look_at  # imports the driver: the help text does not wait for it

    asks = uri is None and sys.stdin.isatty()
    while True:
        if asks:
            uri = typer.prompt(
                "MongoDB connection string (not shown; empty: later)", default="", hide_input=True, show_default=False
            )
        if not uri:
            return None, None
        try:
            source = look_at(uri, database=database)
        except StrandlineError as error:
            if not asks:
                raise
            typer.echo(f"{error}", err=True)
            continue
        _show(source)
        return source, uri


def _show(source: SourceOverview) -> None:
    deployment, rows = source.deployment, source.collections
    kind = "sharded cluster" if deployment.sharded else f"replica set {deployment.set_name}"
    counts = ", ".join(
        f"{count} {noun}{'' if count == 1 else 's'}"
        for count, noun in ((len(source.databases), "database"), (len(rows), "collection"))
    )
    out.print(f"MongoDB {deployment.version}, {kind}, {counts}")
    if source.denied:
        out.print(f"The user may not list: {', '.join(source.denied)}")
    if rows:
        table = [
            {
                "database": item.database,
                "collection": item.name,
                "documents": None if item.documents is None else f"{item.documents:,}",
            }
            for item in rows[:_LISTED]
        ]
        out.print(as_table(table))
    if len(rows) > _LISTED:
        out.print(f"and {len(rows) - _LISTED} smaller collections")


def _project(
    answers: dict[str, str | None], source: SourceOverview | None, database: str, place: str
) -> tuple[Project, str]:
    """Return the answers, and the collection's name in MongoDB.

    Args:
        place: Default of the lake.
    """
    defaults = Project()
    name = _answer(answers, "name", source_name(database))
    collection = _collection(answers, source, database)
    lake = _answer(answers, "lake", place)
    project = Project(name, database, table_name(collection), lake)
    if not lake.startswith(_CATALOG):
        _refuse_databricks(answers, place)
        return project, collection
    catalog = lake.removeprefix(_CATALOG)
    if not catalog:
        raise ConfigurationError(f"{_CATALOG} names no catalog", next_step="write --lake catalog:NAME")
    host = _answer(answers, "host", defaults.host).rstrip("/")
    cloud = _answer(answers, "cloud", cloud_of(host))
    warehouse = _answer(answers, "warehouse", defaults.warehouse)
    compute = _answer(answers, "compute", defaults.compute)
    return replace(
        project,
        root=defaults.root,
        catalog=catalog,
        host=host,
        cloud=cast(Cloud, cloud),
        warehouse=warehouse,
        compute=cast(Compute, compute),
    ), collection


def _refuse_databricks(answers: dict[str, str | None], place: str) -> None:
    """Refuse options of Databricks for a lake that is in no catalog."""
    options = [f"--{name}" for name in ("host", "cloud", "warehouse", "compute") if answers[name]]
    options += ["--databricks"] if place.startswith(_CATALOG) else []
    if options:
        raise ConfigurationError(
            f"{options[0]} is about Databricks, and this lake is no catalog",
            next_step="write --lake catalog:NAME, or drop it",
        )


def _database(answers: dict[str, str | None], source: SourceOverview | None) -> str:
    databases = [] if source is None else source.databases
    default = None if source is None else source.named or (databases[0] if databases else None)
    is_unclear = source is not None and source.named is None and len(databases) != 1
    if is_unclear and answers["database"] is None and not sys.stdin.isatty():
        listed = ", ".join(databases[:_LISTED]) or "none that the user may list"
        raise ConfigurationError(f"databases of the source: {listed}", next_step="name one with --database")
    database = _answer(answers, "database", default or answers["name"] or Project().database)
    _note_if_missing(database, databases, f"{database} has no collection yet")
    return database


def _collection(answers: dict[str, str | None], source: SourceOverview | None, database: str) -> str:
    names = [] if source is None else [item.name for item in source.collections if item.database == database]
    collection = _answer(answers, "collection", names[0] if names else Project().collection)
    _note_if_missing(collection, names, f"{database} has no collection {collection} yet")
    return collection


def _note_if_missing(name: str, names: list[str], note: str) -> None:
    """Print a *note* and the nearest of the *names* that the source has, unless *name* is one or none is known."""
    from strandline.settings.keys import nearest  # imports pydantic: the help text does not wait for it

    if names and name not in names:
        out.print(f"note     {note}{nearest(name, names)}")


def _answer(answers: dict[str, str | None], key: str, default: str) -> str:
    answer = answers[key]
    if answer is None and sys.stdin.isatty():
        answer = typer.prompt(_QUESTIONS[key], default=default, show_default=bool(default))
    return answer or default
