"""The command line: its commands, its global options, and one line with an exit code for every refusal."""

from __future__ import annotations

# isort: off
from strandline.interrupts import EXIT_CODE, Interrupts  # before all others, which take up to a second

# isort: on
import gc
import logging
import re
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from strandline.commands.cuts import cuts
from strandline.commands.dead_letters import dead_letters
from strandline.commands.demo import demo
from strandline.commands.doctor import doctor
from strandline.commands.erase import erase
from strandline.commands.explain import explain
from strandline.commands.export import export
from strandline.commands.gold import gold
from strandline.commands.init import init
from strandline.commands.maintain import maintain
from strandline.commands.metrics import metrics
from strandline.commands.offsets import offsets
from strandline.commands.pipeline import capture, run, silver
from strandline.commands.progress import shown_progress
from strandline.commands.quality import quality
from strandline.commands.rebuild import rebuild
from strandline.commands.reconcile import reconcile
from strandline.commands.restore import restore
from strandline.commands.schema import schema
from strandline.commands.snapshot import snapshot
from strandline.commands.sources import delete, pause, resume, start, stop
from strandline.commands.sql import sql
from strandline.commands.status import status
from strandline.commands.terminal import NAME, program
from strandline.commands.ui import ui
from strandline.commands.version import version
from strandline.commands.wait import wait
from strandline.control.logs import LogFormat, set_up_logging
from strandline.errors import (
    ConfigurationError,
    RetriableError,
    StrandlineError,
    missing_package,
    missing_right,
    one_line,
    strandline_error,
)
from strandline.io.spark.databricks_runtime import runs_on_databricks
from strandline.io.spark.older_wheel import REMEDY, older_wheel
from strandline.io.spark.spark_versions import is_too_old, old_spark
from strandline.plain_text import stack_trace
from strandline.settings import DEFAULT_CONF

if TYPE_CHECKING:
    from types import TracebackType

_log = logging.getLogger("strandline.cli")

_COMMANDS: dict[str, tuple[Callable[..., None] | typer.Typer, ...]] = {
    "Run the pipeline": (init, demo, run, capture, silver, gold),
    "See what is there": (doctor, status, wait, ui, sql, schema, metrics, export, explain, version),
    "Source and position": (snapshot, offsets, stop, start, pause, resume),
    "Quality and repair": (quality, dead_letters, reconcile, rebuild, cuts, restore),
    "Tables": (maintain, erase, delete),
}
"""Every command, by panel of the help text, in the order in which people need them."""


class _InOrder(TyperGroup):
    """The commands in the order of `_COMMANDS`. Typer lists single commands before groups of commands.

    The options of every command may stand behind a command, too. Without arguments the help is printed.
    """

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]  # why: as below
        try:
            return super().parse_args(ctx, _global_options_first(self, args))
        except _PARSER_ERROR as error:
            if not args:  # it prints the help, which was asked for
                error.exit_code = 0
            raise

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]  # noqa: ARG002  # why: typer's context is click's, and click names the argument
        return [_name(command) for panel in _COMMANDS.values() for command in panel]


def _global_options_first(group: Any, args: Sequence[str]) -> list[str]:
    """Return *args* with the options of *group* before its command. Options of the command itself stay behind it."""
    mine, command = _options(group), group
    first, rest = list[str](), list[str]()
    left = iter(args)
    for arg in left:
        name, has_value, _ = arg.partition("=")
        if arg == "--":
            return [*first, *rest, arg, *left]
        if arg in getattr(command, "commands", {}):
            command = command.commands[arg]
        its = _options(command)
        place = first if name in mine and (command is group or name not in its) else rest
        place.append(arg)
        takes_value = (mine | its).get(name, False) and not has_value
        if takes_value:
            value = next(left, None)
            if value is None:
                raise typer.BadParameter(f"{name} needs a value")
            place.append(value)
    return first + rest


def _options(command: Any) -> dict[str, bool]:
    """Return the options of *command*. True: the option takes a value."""
    return {
        name: not getattr(option, "is_flag", False)
        for option in command.params
        for name in (*option.opts, *option.secondary_opts)
        if name.startswith("-")
    }


def _name(command: Callable[..., None] | typer.Typer) -> str:
    name = str(command.info.name) if isinstance(command, typer.Typer) else command.__name__
    return name.replace("_", "-")


app = typer.Typer(
    name=NAME,
    cls=_InOrder,
    help="Bring MongoDB into a Delta lake.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
for panel, commands in _COMMANDS.items():
    for command in commands:
        if isinstance(command, typer.Typer):
            app.add_typer(command, rich_help_panel=panel)
        else:
            app.command(rich_help_panel=panel)(command)

_WITHOUT_PROGRESS = {"demo", "ui"}
"""Commands that show progress in their own way."""
_BROUGHT_BY_A_CLUSTER = {"pyspark", "py4j", "delta", "pandas"}
_PARSER_ERROR: Any = typer.BadParameter.__mro__[2]
"""ClickException, of the package click or of Typer's own copy."""


def _print_version(asked: bool) -> None:
    if asked:
        version()
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    target: Annotated[
        str, typer.Option(envvar="STRANDLINE_TARGET", help="Name of the configuration: conf/<target>.yml.")
    ] = "local",
    conf: Annotated[
        Path, typer.Option(envvar="STRANDLINE_CONF", help="Folder of the configuration files.")
    ] = DEFAULT_CONF,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Set a setting, such as lake.catalog=main. Repeatable. Not for secrets."
        ),
    ] = None,
    log_format: Annotated[
        LogFormat,
        typer.Option(help="Format of the log on standard error. auto: short lines on a terminal, JSON elsewhere."),
    ] = "auto",
    show_version: Annotated[  # noqa: ARG001  # why: its callback ends the program
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Options of every command."""
    set_up_logging(log_format)
    if (older := older_wheel()) is not None:
        _log.warning("%s -> %s", older, REMEDY)
    context.obj = (target, conf, _overrides(assignments or ()))
    if context.invoked_subcommand not in _WITHOUT_PROGRESS:
        context.with_resource(shown_progress(bars=log_format != "json"))


def _overrides(assignments: Sequence[str]) -> dict[str, Any]:
    if not assignments:
        return {}
    from strandline.settings.configuration import Settings  # imports pydantic: the help text does not wait for it
    from strandline.settings.overrides import overrides_of

    return overrides_of(assignments, Settings)


def _without_spark(error: Exception) -> StrandlineError | None:
    """Return the refusal for a package that a cluster provides and the wheel does not require. None: a defect."""
    package = (error.name or "").partition(".")[0] if isinstance(error, ImportError) else ""
    if package in _BROUGHT_BY_A_CLUSTER and is_too_old(version := _spark_version()):
        return old_spark(version)
    if (missing := missing_package(error)) is None:
        return None
    return ConfigurationError(f"{missing.message}, and this command needs it", next_step=missing.next_step)


def _spark_version() -> str:
    """Return the version of the PySpark that is installed here. Empty: there is none."""
    try:
        import pyspark
    except ImportError:
        return ""
    return str(pyspark.__version__)


def _refusal(error: Exception) -> StrandlineError | None:
    """Return *error* as a refusal. None: a defect."""
    return strandline_error(error) or _without_spark(error) or missing_right(error) or _overtaken(error)


def _overtaken(error: Exception) -> StrandlineError | None:
    """Return the refusal for a commit of Spark that another writer overtook. None: *error* is another one."""
    from strandline.io.spark.races import lost_a_race

    if not lost_a_race(error):
        return None
    return RetriableError(f"another process changed a table meanwhile: {one_line(error)}", next_step="try again")


def _as_typed(advice: str) -> str:
    """Return *advice* with each command of this program as it can be typed here."""
    verbs = "|".join(map(re.escape, typer.main.get_command(app).list_commands(None)))  # type: ignore[attr-defined]  # why: a group
    return re.sub(rf"(?<![\w./-]){NAME}(?= (?:{verbs})\b)", lambda _: program(), advice)


def _tell_defect(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, Exception):
        print(stack_trace(error), file=sys.stderr)  # noqa: T201  # why: as below
    else:
        sys.__excepthook__(kind, error, trace)


def main() -> None:
    """Run the command line. A refusal is one line and an exit code. Only a defect prints a stack trace.

    On Databricks, an error is raised instead of an exit code: the page of a run shows the error, and of an exit code
    only its number.
    """
    try:
        if runs_on_databricks():
            _run_task()
        else:
            if Interrupts.installed() is None:
                Interrupts().install()
            app(standalone_mode=True)
    except Exception as error:
        if (refusal := _refusal(error)) is None:
            raise
        refusal.next_step = _as_typed(refusal.next_step)
        if runs_on_databricks():
            raise refusal.with_traceback(None) from None
        print(f"{NAME}: {refusal}", file=sys.stderr)  # noqa: T201  # why: rich would wrap the line
        sys.exit(refusal.exit_code)
    except SystemExit as ended:
        if ended.code:  # a success only returns: Databricks takes any SystemExit in a wheel task for a failure
            raise
    finally:
        sys.excepthook = _tell_defect  # Typer has put its own there
        # not imported here: it takes a tenth of a second, and a command that did not connect has nothing to wait for
        if (client := sys.modules.get("strandline.source.client")) is not None:
            client.end_without_waiting()
        gc.freeze()  # the interpreter would search all objects for cycles, twice: a quarter of a second
        if (interrupts := Interrupts.installed()) is not None and interrupts.received == signal.SIGINT:
            sys.exit(EXIT_CODE)


def _run_task() -> None:
    """Run the command line as a task of Databricks.

    Raises:
        StrandlineError: An option is wrong, or the command ended with an exit code. Its output has the details.
    """
    try:
        code = app(standalone_mode=False)
    except _PARSER_ERROR as error:
        raise ConfigurationError(
            error.format_message(),
            next_step="correct the parameters of the task; strandline explain commands lists them",
        ) from None
    if code:
        raise StrandlineError(f"the command ended with exit code {code}", next_step="see its output")


if __name__ == "__main__":
    main()
