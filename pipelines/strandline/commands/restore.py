"""``strandline restore``: write collections as they were at a moment."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from strandline.commands.terminal import AsJson, at_terminal, opener, out, print_json, print_rows

_FILES = "files"


AsOf = Annotated[
    str,
    typer.Option(
        help="ISO 8601 time (the end of its second), operation time such as 1764300000,3, or number of a cut."
    ),
]
Patterns = Annotated[
    list[str],
    typer.Option("--collection", help="Regular expression for the whole of database.collection. Repeatable."),
]
Place = Annotated[str, typer.Option(help="mongodb:// URI of another deployment, or files.")]
Folder = Annotated[Path | None, typer.Argument(metavar="[DIR]", help="Folder of --to files.")]
Keys = Annotated[
    list[str] | None,
    typer.Option("--key", help="Restore only the document with this _id, as Extended JSON. Repeatable. Default: all."),
]
AllowInexact = Annotated[
    bool,
    typer.Option("--allow-inexact", help="Also write documents that are not known exactly, and list each of them."),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue an interrupted restore: the target need not be empty.")
]
IntoSource = Annotated[
    bool, typer.Option("--into-source", help="Write into the captured deployment. Asks for the database name.")
]
Databases = Annotated[
    list[str] | None,
    typer.Option("--database", help="With --into-source: name of a restored database, typed again. Repeatable."),
]


def restore(
    context: typer.Context,
    as_of: AsOf,
    collection: Patterns,
    to: Place,
    folder: Folder = None,
    key: Keys = None,
    allow_inexact: AllowInexact = False,
    resume: Resume = False,
    into_source: IntoSource = False,
    database: Databases = None,
    as_json: AsJson = False,
) -> None:
    """Write collections as they were at a moment to another deployment or to BSON files, and prove the result."""
    from strandline.jobs.restore.run_restore import run_restore

    if (to == _FILES) != (folder is not None) or (to != _FILES and "://" not in to):
        raise typer.BadParameter("write --to files DIR, or --to mongodb://…")
    names = database or []
    if into_source and not names and at_terminal():
        names = [str(typer.prompt("Name of the database to write into the captured source"))]
    if into_source != bool(names):
        raise typer.BadParameter("--into-source and --database NAME belong together")
    result = run_restore(
        opener(context, briefly=False).with_spark(),
        as_of=as_of,
        collections=collection,
        to=folder or to,
        keys=key or (),
        allow_inexact=allow_inexact,
        resume=resume,
        into_source=names,
    )
    if as_json:
        print_json(asdict(result))
        return
    print_rows([asdict(written) for written in result.collections])
    for document in result.inexact:
        effect = "" if document.is_written else ", not written"
        out.print(f"not exact: {document.collection} {document.key} ({document.reason}{effect})", highlight=False)
