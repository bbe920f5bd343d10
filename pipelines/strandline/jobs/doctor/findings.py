"""Findings of `strandline doctor`: one fact each, with its severity, the reason why it matters, and the cure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal, TypeVar, get_args

from pydantic import Field

from strandline.errors import (
    ConfigurationError,
    ContractError,
    FencedError,
    ResumePointLost,
    RetriableError,
    StrandlineError,
    one_line,
    strandline_error,
)

T = TypeVar("T")
Severity = Literal["error", "warning", "info", "ok"]
Area = Literal["configuration", "source", "lake", "spark", "gold", "quality"]
AREAS: Final[tuple[Area, ...]] = get_args(Area)
"""Areas, in the order of the output."""
_KINDS: Final = {
    kind.exit_code: kind for kind in (ConfigurationError, ResumePointLost, ContractError, FencedError, RetriableError)
}

_THIS: Final = "strandline doctor"
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


@dataclass(frozen=True)
class Check:
    """One check, as the documentation lists it.

    Args:
        name: Area, a dot, and the name inside the area.
        subject: What it looks at.
        why: Why it matters.
        fix: Command or setting that usually mends it.
    """

    name: str
    subject: str
    why: str
    fix: str

    @property
    def area(self) -> Area:
        return next(area for area in AREAS if area == self.name.partition(".")[0])

    def ok(self, found: str) -> Finding:
        return Finding(self.area, self.name, "ok", found, self.why)

    def info(self, found: str, *, fix: str = "") -> Finding:
        return Finding(self.area, self.name, "info", found, self.why, fix)

    def warning(self, found: str, *, fix: str = "") -> Finding:
        return Finding(self.area, self.name, "warning", found, self.why, fix or self.fix)

    def error(self, found: str, *, fix: str = "", exit_code: int = ConfigurationError.exit_code) -> Finding:
        return Finding(self.area, self.name, "error", found, self.why, fix or self.fix, exit_code)

    def failed(self, error: Exception, severity: Severity = "error") -> Finding:
        """Return the finding for a fact that could not be had because of *error*."""
        known = strandline_error(error)
        found = self.error(
            one_line(error) if known is None else known.message,
            fix="" if known is None or known.next_step == _THIS else known.next_step,
            exit_code=StrandlineError.exit_code if known is None else known.exit_code,
        )
        if severity == "error":
            return found
        return replace(found, severity=severity, found=f"not known: {found.found}", exit_code=0)


class Notes:
    """Findings so far."""

    def __init__(self) -> None:
        self._findings: list[Finding] = []

    def add(self, *findings: Finding) -> None:
        self._findings += findings

    def attempt(self, check: Check, read: Callable[[], T], *, severity: Severity = "error") -> T | None:
        """Return the result of *read*. None: it failed, and the failure is a finding of *severity*."""
        try:
            return read()
        except Exception as error:  # noqa: BLE001  # why: whatever fails is a finding, and the other checks go on
            self.add(check.failed(error, severity))
            return None

    def look(
        self, check: Check, find: Callable[[], Finding | Iterable[Finding]], *, severity: Severity = "error"
    ) -> bool:
        """Add the findings of *find*. Return False if it failed; the failure is then a finding of *severity*."""
        found = self.attempt(
            check, lambda: [each] if isinstance(each := find(), Finding) else list(each), severity=severity
        )
        self.add(*(found or ()))
        return found is not None

    def sorted(self) -> list[Finding]:
        """Return the findings, area by area, in the order in which they were found."""
        return sorted(self._findings, key=lambda finding: AREAS.index(finding.area))


def refusal(findings: Sequence[Finding]) -> StrandlineError | None:
    """Return the first error, as the command that fails because of it would raise it. None: there is no error."""
    errors = [finding for finding in findings if finding.severity == "error"]
    if not errors:
        return None
    first, more = errors[0], f" (the first of {len(errors)} errors)" if len(errors) > 1 else ""
    return _KINDS.get(first.exit_code, StrandlineError)(first.found + more, next_step=first.fix)
