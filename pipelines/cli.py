"""The command: parse → settings → session → job → exit code. No logic."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pipelines import __version__
from pipelines.commands.cuts import cuts
from pipelines.commands.dead_letters import dead_letters
from pipelines.commands.gold import exit_where_failed, gold
from pipelines.commands.maintain import maintain
from pipelines.commands.offsets import offsets
from pipelines.commands.quality import quality
from pipelines.commands.rebuild import rebuild
from pipelines.commands.reconcile import reconcile
from pipelines.commands.schema import schema
from pipelines.commands.snapshot import snapshot
from pipelines.commands.sources import delete, pause, resume, start, stop
from pipelines.commands.status import status
from pipelines.commands.terminal import (
    NAME,
    AsJson,
    at_most,
    lake_settings,
    open_pipeline,
    out,
    print_record,
    print_rows,
    program,
    settings_of,
    stop_on_signal,
)
from pipelines.control.logs import set_up_logging
from pipelines.errors import ConfigurationError, StrandlineError, with_extra
from pipelines.plain_text import stack_trace
from pipelines.settings.configuration import DEFAULT_CONF

if TYPE_CHECKING:
    from types import TracebackType

    from pipelines.jobs.context import JobContext

app = typer.Typer(
    name=NAME, help="Bring MongoDB into a Delta lake.", no_args_is_help=True, pretty_exceptions_enable=False
)
app.add_typer(cuts, name="cuts")
app.add_typer(dead_letters, name="dead-letters")
app.add_typer(gold, name="gold")
app.add_typer(offsets, name="offsets")
app.add_typer(quality, name="quality")
app.add_typer(schema, name="schema")
app.add_typer(snapshot, name="snapshot")
for verb in (stop, start, pause, resume, delete, status, reconcile, rebuild, maintain):
    app.command()(verb)

_BROUGHT_BY_A_CLUSTER = {"pyspark", "py4j", "delta"}
Once = Annotated[
    bool, typer.Option("--once", help="Until caught up with the source's operation time at the start, then end.")
]


@app.callback()
def options(
    context: typer.Context,
    target: Annotated[str, typer.Option(envvar="STRANDLINE_TARGET", help="Which conf/<target>.yml.")] = "local",
    conf: Annotated[Path, typer.Option(envvar="STRANDLINE_CONF", help="Folder of the configuration.")] = DEFAULT_CONF,
    log_format: Annotated[Literal["text", "json"], typer.Option(help="Of the log on standard error.")] = "text",
) -> None:
    """Options of every verb."""
    set_up_logging(log_format)
    context.obj = (target, conf)


@app.command()
def capture(context: typer.Context, once: Once = False) -> None:
    """Land change stream and snapshot in bronze."""
    from pipelines.jobs.capture.job import run_capture

    result = run_capture(_open_and_serve(context), once=once, stop=stop_on_signal(), report=_log_landed)
    out.print(
        f"bronze: {result.events:,} events and {result.documents:,} snapshot documents landed, last batch {result.batch}"
    )


@app.command()
def silver(
    context: typer.Context,
    once: Annotated[  # noqa: ARG001  # why: scripts may name it, as of capture and run
        bool, typer.Option("--once", help="No effect: silver always ends when it has merged what is in bronze.")
    ] = False,
    collection: Annotated[list[str] | None, typer.Option(help="db.collection; may be repeated. Default: all.")] = None,
) -> None:
    """MERGE what is new in bronze into silver, then end. `strandline run` goes on."""
    from pipelines.jobs.silver.job import run_silver

    for result in run_silver(open_pipeline(context), collections=collection or ()):
        versions = f", {result.versions:,} versions" if result.versions else ""
        out.print(
            f"{result.table}: {result.inserted:,} inserted, {result.updated:,} updated{versions} in {result.seconds:.1f} s"
        )


@app.command()
def run(context: typer.Context, once: Once = False) -> None:
    """Everything in one process: capture, silver, gold."""
    from pipelines.jobs.run import run_continuously, run_once

    ctx, stopped = _open_and_serve(context), stop_on_signal()
    if once:
        exit_where_failed(run_once(ctx, report=_log_landed, silver_report=_log_merged))
    else:
        run_continuously(ctx, stopped, report=_log_landed, silver_report=_log_merged)


@app.command()
def metrics(context: typer.Context) -> None:
    """What `status` shows, for Prometheus, in its text format."""
    from pipelines.jobs.operations.metrics import exposition

    typer.echo(exposition(open_pipeline(context)), nl=False)


@app.command()
def doctor(context: typer.Context) -> None:
    """Check source, position, lake and configuration; nothing is written."""
    from pipelines.jobs.operations.doctor import diagnose

    print_record(diagnose(open_pipeline(context)))


@app.command()
def sql(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help="select … from silver.flights")],
    limit: Annotated[int, typer.Option(min=1, help="Rows at most.")] = 1000,
    as_json: AsJson = False,
) -> None:
    """Query bronze, silver, gold and control by their layer names."""
    from pipelines.jobs.operations.sql import run_sql

    found = run_sql(open_pipeline(context), query).limit(limit + 1).collect()
    print_rows([row.asDict(recursive=True) for row in at_most(limit, found)], as_json=as_json)


@app.command()
def demo(
    context: typer.Context,
    rows: Annotated[int | None, typer.Option(help="Flights to load and replay, about.")] = None,
    lake: Annotated[Path, typer.Option(help="Folder of the demo's lake; an earlier demo's is replaced.")] = Path(
        "lake/demo"
    ),
) -> None:
    """Embedded MongoDB + real flights + live changes → bronze → silver → gold, and the proof."""
    from pipelines.jobs.demo import run_demo

    run_demo(settings_of(context), lake=lake, rows=rows, console=out, command=program())


@app.command()
def version() -> None:
    """Print the version."""
    out.print(__version__)


def _open_and_serve(context: typer.Context) -> JobContext:
    """The pipeline, with its counters served where ``metrics.port`` says."""
    from pipelines.io.metrics import serve
    from pipelines.jobs.context import open_context

    settings = lake_settings(context)
    if settings.metrics.port is not None:  # before Spark starts: a port that is taken is told at once
        serve(settings.metrics.port, settings.metrics.address)
    return open_context(settings)


def _log_landed(what: str, count: int) -> None:
    import logging

    logging.getLogger("strandline.capture").info("bronze: %s %s landed", f"{count:,}", what)


def _log_merged(result: Any) -> None:
    import logging

    logging.getLogger("strandline.silver").info(
        "%s: %d inserted, %d updated in %.1f s", result.table, result.inserted, result.updated, result.seconds
    )


def _without_spark(error: ModuleNotFoundError) -> StrandlineError | None:
    """What the wheel does not require, because a cluster brings its own; None: another module, and a defect."""
    package = (error.name or "").partition(".")[0]
    if package not in _BROUGHT_BY_A_CLUSTER:
        return None
    return ConfigurationError(
        f"{package} is not installed, and this verb needs Spark",
        next_step=with_extra("spark"),
    )


def _as_typed(advice: str) -> str:
    """*advice* with the commands of this program as they can be typed here."""
    verbs = "|".join(map(re.escape, typer.main.get_command(app).list_commands(None)))  # type: ignore[attr-defined]  # why: a group
    return re.sub(rf"(?<![\w./-]){NAME}(?= (?:{verbs})\b)", lambda _: program(), advice)


def _tell_defect(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, Exception):
        print(stack_trace(error), file=sys.stderr)  # noqa: T201  # why: as below
    else:
        sys.__excepthook__(kind, error, trace)


def main() -> None:
    """Entry point: one line and an exit code for every refusal; a stack trace only for a defect."""
    try:
        app(standalone_mode=True)
    except (StrandlineError, ModuleNotFoundError) as error:
        refusal = error if isinstance(error, StrandlineError) else _without_spark(error)
        if refusal is None:
            raise
        refusal.next_step = _as_typed(refusal.next_step)
        print(f"{NAME}: {refusal}", file=sys.stderr)  # noqa: T201  # why: rich would wrap the line
        sys.exit(refusal.exit_code)
    except SystemExit as ended:
        if ended.code:  # a success only returns: Databricks takes any SystemExit in a wheel task for a failure
            raise
    finally:
        sys.excepthook = _tell_defect  # Typer has put its own there


if __name__ == "__main__":
    main()
