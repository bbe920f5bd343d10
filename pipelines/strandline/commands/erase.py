"""``strandline erase``: documents that nobody may see any more."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.commands.offsets import By, Why
from strandline.commands.terminal import AsJson, lake_settings, opener, out, print_json, print_rows
from strandline.errors import ConfigurationError

if TYPE_CHECKING:
    from strandline.jobs.erase.run_erase import ErasureResult

erase = typer.Typer(
    name="erase", help="Erase documents from every table of the lake, and then from its files and logs."
)


@erase.callback(invoke_without_command=True)
def documents(
    context: typer.Context,
    by: By,
    collection: Annotated[str | None, typer.Option(help="database.collection of the documents.")] = None,
    key: Annotated[list[str] | None, typer.Option(help="Value of _id, as Extended JSON. Repeatable.")] = None,
    keys_file: Annotated[Path | None, typer.Option(help="File with one such value per line.")] = None,
    where: Annotated[str | None, typer.Option(help="SQL condition on the silver table, instead of values.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Erase. Without it, only count the rows.")] = False,
    why: Why = None,
    now: Annotated[
        bool, typer.Option("--now", help="Also remove older versions and logs at once. The source must be stopped.")
    ] = False,
    count: Annotated[int | None, typer.Option(help="Number of documents, if the condition matches all.")] = None,
    as_json: AsJson = False,
) -> None:
    """Erase documents from every table of the lake, and then from its files and logs. Without --yes: only count."""
    if context.invoked_subcommand is not None:
        return
    from strandline.jobs.erase.run_erase import run_erase

    keys = [*(key or ()), *(_lines(keys_file) if keys_file else ())]
    if collection is None or bool(keys) == (where is not None):
        raise typer.BadParameter("write --collection, and --key or --keys-file; or --where instead of them")
    result = run_erase(
        opener(context, briefly=False).with_spark(),
        collection,
        keys=keys,
        where=where,
        by=by,
        why=why,
        now=now,
        dry_run=not yes,
        count=count,
    )
    if as_json:
        print_json(asdict(result))
        return
    print_rows([{"table": table, "rows": rows} for table, rows in result.rows.items()])
    for line in _advice(result, now=now):
        out.print(line, highlight=False, soft_wrap=True)


def _advice(result: ErasureResult, *, now: bool) -> list[str]:
    """Return what an operator should know about an erasure."""
    lines = []
    if result.in_source:
        lines.append(
            f"THE SOURCE STILL HAS {result.in_source:,} of these documents. Delete them there first: "
            "a capture lands every later change of them again"
        )
    elif result.in_source is None:
        lines.append("the source did not answer: check that it no longer has the documents")
    if result.id is None:
        lines.append(f"{result.documents:,} documents would be erased. Add --yes to erase them")
        if now:
            lines.append("--now: readers lose all older versions, and a reader that is behind reads whole tables")
    else:
        rest = "no file holds them" if result.is_gone else "strandline maintain removes files and logs"
        lines.append(f"erasure {result.id}: {result.documents:,} documents are hidden; {rest}")
    return lines


@erase.command("list")
def list_(context: typer.Context, as_json: AsJson = False) -> None:
    """List erasures: when the documents were hidden, and since when no file holds them."""
    from strandline.control.erasures import Erasures

    ctx = opener(context).for_control()
    rows = Erasures(ctx.tables).all(ctx.settings.source.name)
    hidden = ("names", "tables")
    print_rows([{name: row[name] for name in row if name not in hidden} for row in rows], as_json=as_json)


@erase.command("verify")
def verify(
    context: typer.Context,
    value: Annotated[list[str] | None, typer.Option(help="Value of an erased document. Repeatable.")] = None,
    values_file: Annotated[Path | None, typer.Option(help="File with one value per line.")] = None,
    as_json: AsJson = False,
) -> None:
    """Search every file under the lake for values of erased documents. Exit 4 if a file holds one."""
    from strandline.jobs.erase.verify import find_values

    values = [*(value or ()), *(_lines(values_file) if values_file else ())]
    if not values:
        raise typer.BadParameter("write --value or --values-file")
    search = find_values(lake_settings(context), values)
    if as_json:
        print_json(asdict(search))
    else:
        print_rows([asdict(trace) for trace in search.traces])
        out.print(f"{search.files:,} files searched, {len(search.traces):,} hold a value", highlight=False)
    if search.traces:
        raise typer.Exit(4)


def _lines(file: Path) -> list[str]:
    try:
        return [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} cannot be read ({error})", next_step="name a text file") from None
