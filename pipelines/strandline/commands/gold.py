"""``strandline gold``: build, plan, test and drop the views and tables that analysts read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

from strandline.commands.telemetry import telemetry
from strandline.commands.terminal import AsJson, opener, out, print_rows

if TYPE_CHECKING:
    from strandline.gold.results import GoldResult


class _BuildByDefault(TyperGroup):
    """Treat ``gold``, ``gold NAME…`` and ``gold --plan`` as ``gold build …``."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]  # why: typer's context is click's
        first = args[0] if args else ""
        return super().parse_args(ctx, args if first in self.commands or first == "--help" else ["build", *args])


gold = typer.Typer(
    name="gold",
    cls=_BuildByDefault,
    help="Build the views and tables of gold: `gold [NAME…]`, `gold --plan`, `gold test`, `gold drop`.",
)


@gold.command("build")
def build(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(help="Build only these nodes and the gold nodes that they read. Default: all.")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Show what would be built, and why. Build nothing.")] = False,
    no_quality: Annotated[bool, typer.Option("--no-quality", help="Skip the quality gate.")] = False,
    once: Annotated[bool, typer.Option("--once", hidden=True)] = False,  # noqa: ARG001  # why: as of silver
    as_json: AsJson = False,
) -> None:
    """Check quality, then build the nodes whose inputs changed, in order of their references."""
    from strandline.jobs.gold.planned import plan_gold
    from strandline.jobs.gold.refresh import refresh_gold
    from strandline.jobs.gold.run_gold import NO_GOLD, run_gold

    ctx = opener(context, briefly=False).with_spark()
    if plan:
        planned = plan_gold(ctx, names or ())
        if planned or as_json:
            print_rows([asdict(result) for result in planned], as_json=as_json)
        else:
            _say(NO_GOLD)
        return
    with telemetry(ctx.settings):
        results = (run_gold if no_quality else refresh_gold)(ctx, names or ())
    if as_json:
        print_rows([asdict(result) for result in results], as_json=True)
    else:
        _say(*map(_line, results))
        if not results:
            _say(NO_GOLD)
    exit_where_failed(results)


def _line(result: GoldResult) -> str:
    by = f" by {result.engine}" if result.engine else ""
    reason = f" ({result.reason})" if result.reason else ""
    return f"{result.name}: {result.status}{by}{reason}"


def _say(*lines: str) -> None:
    for line in lines:
        out.print(line, highlight=False, markup=False, soft_wrap=True)


def exit_where_failed(results: Sequence[GoldResult]) -> None:
    """Exit with 1 if a view or table failed. The failures have been printed already."""
    if any(result.status == "failed" for result in results):
        raise typer.Exit(1)


@gold.command("test")
def run_cases(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(help="Run only the cases of these nodes. Default: all.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run the YAML test cases of the SQL files: given rows, expected rows."""
    from strandline.jobs.gold.run_gold import NO_CASES, check_gold

    results = check_gold(opener(context, briefly=False).with_spark(), names or ())
    if not results and not as_json:
        _say(NO_CASES)
    elif as_json:
        print_rows([asdict(result) | {"passed": result.passed} for result in results], as_json=True)
    else:
        for result in results:
            outcome = "passed" if result.passed else f"failed: {result.difference}"
            _say(f"{result.node}, {result.case}: {outcome}")
        out.print(f"{sum(result.passed for result in results)} of {len(results)} cases passed")
    if not all(result.passed for result in results):
        raise typer.Exit(1)


@gold.command("drop")
def drop(
    context: typer.Context,
    names: Annotated[list[str], typer.Argument(help="Tables to drop.")],
) -> None:
    """Drop tables whose SQL file was removed or renamed. `strandline gold --plan` calls them orphaned."""
    from strandline.jobs.gold.run_gold import drop_gold

    _say(*(f"{table}: dropped" for table in drop_gold(opener(context).with_spark(), names)))
