"""``strandline doctor``: check everything that a run needs, and everything that an operator should know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.text import Text

from strandline.commands.terminal import AsJson, out, print_json, settings_of
from strandline.errors import ConfigurationError
from strandline.plain_text import printable

if TYPE_CHECKING:
    from strandline.jobs.doctor.findings import Finding

_STYLES: Final = {"error": "bold red", "warning": "yellow", "info": "cyan", "ok": "green"}


def doctor(
    context: typer.Context,
    no_spark: Annotated[
        bool,
        typer.Option("--no-spark", help="Do not start Spark. For a lake in a local folder or in an object store."),
    ] = False,
    workers: Annotated[
        bool, typer.Option("--workers", help="Check every Spark worker, too: packages, TLS files, MongoDB, clock.")
    ] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Check only settings, SQL files, cases and suites. Nothing is opened.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check configuration, source, lake, Spark, and the files of gold and quality. No table is written.

    Ends with exit code 0 if there is no error, else with the code of the first error.
    """
    if workers and (no_spark or offline):
        raise ConfigurationError("--workers asks the workers of Spark, and --no-spark and --offline start none")
    from strandline.jobs.doctor.findings import refusal

    findings = _findings(context, with_spark=not no_spark, workers=workers, offline=offline)
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        _show(findings)
    if (first := refusal(findings)) is not None:
        raise first


def _findings(context: typer.Context, *, with_spark: bool, workers: bool, offline: bool) -> list[Finding]:
    from strandline.io.spark.older_wheel import older_wheel
    from strandline.jobs.doctor.setting_checks import FILES, PACKAGE, SETTINGS
    from strandline.settings.configuration import missing_files_note

    try:
        settings = settings_of(context)
    except ConfigurationError as error:  # nothing else can be looked at
        return [SETTINGS.failed(error)]
    missing = missing_files_note(*context.obj[:2])
    older = older_wheel()
    first = [
        FILES.ok("there") if missing is None else FILES.warning(missing),
        PACKAGE.ok("none") if older is None else PACKAGE.warning(older),
    ]
    if offline:
        from strandline.jobs.doctor.offline import examine_offline

        return [*first, *examine_offline(settings)]
    from strandline.jobs.doctor.examination import examine

    return [*first, *examine(settings, with_spark=with_spark, workers=workers)]


def _show(findings: Sequence[Finding]) -> None:
    """Print the verdict, then the findings, problems first. A pipe gets one line for each."""
    from strandline.jobs.doctor.findings import problems_first, verdict

    ordered = problems_first(findings)
    if out.is_terminal:
        out.print(Text(verdict(findings), _STYLES[ordered[0].severity]), soft_wrap=True)
        for finding in ordered:
            out.print(as_block(finding), soft_wrap=True)  # the terminal wraps, so a command can be copied
        return
    for line in (verdict(findings), *map(as_line, ordered)):
        typer.echo(line)


def as_line(finding: Finding) -> str:
    """Return a finding on one line: severity, check, fact; of a problem also the reason; then the fix."""
    reason = f" ({finding.why})" if finding.is_problem else ""
    cure = f" → {finding.fix}" if finding.fix else ""
    return printable(f"{finding.severity:<8} {finding.check:<26} {finding.found}{reason}{cure}")


def as_block(finding: Finding) -> Text:
    """Return a finding for a terminal: check and fact, the reason of a problem, and the fix on a line of its own."""
    block = Text(f"{finding.severity:<8}", _STYLES[finding.severity])
    block.append(f" {finding.check}  ", "bold").append(printable(finding.found), "default")
    for line in (finding.why if finding.is_problem else "", finding.fix and f"→ {finding.fix}"):
        block.append(f"\n         {printable(line)}" if line else "", "default")
    return block
