"""Findings of `strandline doctor`: one fact each, with its severity, the reason why it matters, and the cure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Concatenate, Final, Generic, Literal, ParamSpec, TypeVar, get_args

from pydantic import Field

from strandline.errors import (
    ConfigurationError,
    ContractError,
    FencedError,
    ResumePointLost,
    RetriableError,
    StrandlineError,
    missing_package,
    one_line,
    strandline_error,
)

T = TypeVar("T")
P = ParamSpec("P")
Severity = Literal["error", "warning", "info", "ok"]
Area = Literal["configuration", "source", "lake", "spark", "gold", "quality"]
AREAS: Final[tuple[Area, ...]] = get_args(Area)
"""Areas, in the order of the output."""
SEVERITIES: Final[tuple[Severity, ...]] = get_args(Severity)
PROBLEMS: Final[tuple[Severity, ...]] = ("error", "warning")
"""Severities that somebody should act on."""
_KINDS: Final = {
    kind.exit_code: kind for kind in (ConfigurationError, ResumePointLost, ContractError, FencedError, RetriableError)
}

_THIS: Final = re.compile(r"(?:[,;] (?:then )?)?strandline doctor\b[^,;]*")
"""Advice that helps nobody who has run it."""


@dataclass(frozen=True)
class Finding:
    """One fact that `strandline doctor` found."""

    area: Annotated[Area, Field(description="Part of the pipeline.")]
    check: Annotated[str, Field(description="Name of the check. It stays the same from release to release.")]
    severity: Annotated[
        Severity,
        Field(
            description="`error`: a command would fail. `warning`: it works now, and somebody should act. `info`: good "
            "to know, or not looked at. `ok`: as it should be."
        ),
    ]
    found: Annotated[str, Field(description="The fact, or the reason why it could not be found out.")]
    why: Annotated[str, Field(description="Reason why the check matters.")]
    fix: Annotated[str, Field(description="Command or setting that mends it. Empty: nothing to mend.")] = ""
    exit_code: Annotated[int, Field(description="Exit code that the fact leads to. 0: no error.")] = 0

    @property
    def is_problem(self) -> bool:
        """True: somebody should act."""
        return self.severity in PROBLEMS


@dataclass(frozen=True)
class Check:
    """One check, as the documentation lists it.

    Args:
        name: Area, a dot, and the name inside the area.
        subject: What it looks at.
        why: Why it matters.
        fix: Command or setting that usually mends it.
        unknown: Severity of the finding if the facts cannot be had.
    """

    name: str
    subject: str
    why: str
    fix: str
    unknown: Severity = "error"

    @property
    def area(self) -> Area:
        return next(area for area in AREAS if area == self.name.partition(".")[0])

    def ok(self, text: str) -> Finding:
        return Finding(self.area, self.name, "ok", text, self.why)

    def info(self, text: str, *, fix: str = "") -> Finding:
        return Finding(self.area, self.name, "info", text, self.why, fix)

    def warning(self, text: str, *, fix: str = "") -> Finding:
        return Finding(self.area, self.name, "warning", text, self.why, fix or self.fix)

    def error(self, text: str, *, fix: str = "", exit_code: int = ConfigurationError.exit_code) -> Finding:
        return Finding(self.area, self.name, "error", text, self.why, fix or self.fix, exit_code)

    def failed(self, error: Exception) -> Finding:
        """Return the finding for a fact that could not be had because of *error*."""
        own_error = strandline_error(error) or missing_package(error)
        finding = self.error(
            one_line(error) if own_error is None else own_error.message,
            fix="" if own_error is None else _THIS.sub("", own_error.next_step),
            exit_code=StrandlineError.exit_code if own_error is None else own_error.exit_code,
        )
        if self.unknown == "error":
            return finding
        return replace(finding, severity=self.unknown, found=f"not known: {finding.found}", exit_code=0)


@dataclass(frozen=True)
class JudgedCheck(Check, Generic[P, T]):
    """A check with the function that judges its facts. Call it with the facts to get the findings."""

    judge: Callable[Concatenate[Check, P], T] = field(kw_only=True)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.judge(self, *args, **kwargs)


def doctor_check(
    name: str, subject: str, *, why: str, fix: str, unknown: Severity = "error"
) -> Callable[[Callable[Concatenate[Check, P], T]], JudgedCheck[P, T]]:
    """Return a decorator that makes a check of a pure function from facts to findings. See `Check`."""
    return lambda judge: JudgedCheck(name, subject, why, fix, unknown, judge=judge)


class Notes:
    """Findings so far."""

    def __init__(self) -> None:
        self._findings: list[Finding] = []

    def add(self, *findings: Finding) -> None:
        self._findings += findings

    def attempt(self, check: Check, reader: Callable[[], T]) -> T | None:
        """Return the result of *reader*. None: it failed, and the failure is a finding."""
        try:
            return reader()
        except Exception as error:  # noqa: BLE001  # why: whatever fails is a finding, and the other checks go on
            self.add(check.failed(error))
            return None

    def look(self, check: Check, examine: Callable[[], Finding | Iterable[Finding]]) -> bool:
        """Add the findings of *examine*. Return False if it failed; the failure is then a finding."""

        def findings() -> list[Finding]:
            result = examine()
            return [result] if isinstance(result, Finding) else list(result)

        result = self.attempt(check, findings)
        self.add(*(result or ()))
        return result is not None

    def sorted(self) -> list[Finding]:
        """Return the findings, area by area, in the order in which they were found."""
        return sorted(self._findings, key=lambda finding: AREAS.index(finding.area))


def problems_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings by severity: errors, warnings, what is good to know, what is well."""
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def verdict(findings: Sequence[Finding]) -> str:
    """Return one line: how many errors and warnings there are, and the names of their checks."""
    checks = {kind: [finding.check for finding in findings if finding.severity == kind] for kind in PROBLEMS}
    counts = [f"{len(names) or 'no'} {kind}{'' if len(names) == 1 else 's'}" for kind, names in checks.items()]
    names = "; ".join(", ".join(dict.fromkeys(names)) for names in checks.values() if names)
    return ", ".join(counts) + (f": {names}" if names else f" among {len(findings)} findings")


def refusal(findings: Sequence[Finding]) -> StrandlineError | None:
    """Return the first error, as the command that fails because of it would raise it. None: there is no error."""
    errors = [finding for finding in findings if finding.severity == "error"]
    if not errors:
        return None
    first, more = errors[0], f" (the first of {len(errors)} errors)" if len(errors) > 1 else ""
    return _KINDS.get(first.exit_code, StrandlineError)(first.found + more, next_step=first.fix)
