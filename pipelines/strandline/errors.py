"""Errors that Strandline raises on purpose.

    StrandlineError
    ├── RetriableError          the same call may succeed later                     exit 75
    │   └── LakeUnavailable     the lake cannot be read or written
    ├── TerminalError           the same call fails until a person changes something
    │   ├── ConfigurationError  conf, environment, options, privileges, topology    exit 2
    │   ├── ResumePointLost     the source no longer holds the committed position   exit 3
    │   ├── ContractError       a table or a row breaks its contract                exit 4
    │   └── FencedError         another writer owns the source's bronze table       exit 6
    └── QualityGateClosed       a blocking expectation failed                       exit 5

A message is one line: what happened, why, and the next command to run. It holds no secret and no value of a
document.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from strandline.plain_text import printable, raised_by_worker, without_values

_ASK_WORKERS: Final = "strandline doctor --workers"
_NO_MODULE: Final = re.compile(r"No module named '([\w.]+)'")
_VERSIONS: Final = re.compile(r"\[PYTHON_VERSION_MISMATCH\] .*?(\d+\.\d+).*?(\d+\.\d+)")

_EXTRAS: Final = {
    "delta": "spark",
    "great_expectations": "quality",
    "pandas": "quality",
    "py4j": "spark",
    "pyspark": "spark",
}
"""Extra that brings a package, by the package's module. A cluster brings them, so the wheel does not require them."""
_INSUFFICIENT_PRIVILEGE: Final = "42501"
RIGHTS: Final = "strandline explain catalogs lists the rights that Strandline needs"


class StrandlineError(Exception):
    """Base of all errors of Strandline. The printed line ends with *next_step*, the command or change that helps."""

    exit_code = 1

    def __init__(self, message: str, *, next_step: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step

    def __str__(self) -> str:
        whole = f"{self.message} → {self.next_step}" if self.next_step else self.message
        # A name or a driver's text may hold line breaks and escapes. The printed line must not.
        return printable(" ".join(whole.split()))


class RetriableError(StrandlineError):
    """The source or the lake did not answer, or another process changed a table at the same time.

    Examples: Delta no longer holds the table version that was being read (``VersionGone``). Another run changed the
    columns first (``OvertakenError``). Capture can append no more in this run, because its commit went into a replaced
    table (``WriterEnded``). Nothing was lost. The next run reads the newest state and continues.
    """

    exit_code = 75


class LakeUnavailable(RetriableError):
    """The lake cannot be read or written: its disk is full, or its store does not answer.

    Nothing was lost. A capture opens the lake again after a wait, up to ``capture.connect_max_attempts`` times.
    """


class TerminalError(StrandlineError):
    """Base of errors that repeat until a person changes something. Nothing was lost."""


class ConfigurationError(TerminalError):
    """A setting, an option, a privilege or the source's topology is wrong. Nothing was written."""

    exit_code = 2


class ResumePointLost(TerminalError):
    """The source cannot resume from the committed resume token. Bronze is intact. The gap is not yet recorded."""

    exit_code = 3


class ContractError(TerminalError):
    """A table or a row breaks its contract: an unexpected schema, a missing batch number, a missing column.

    The table stays at its last good version.
    """

    exit_code = 4


class FencedError(TerminalError):
    """Another writer of the same source committed the next batch first.

    This writer wrote nothing. Nothing was lost: the other writer read the same stream. Run only one writer per source.
    """

    exit_code = 6


class QualityGateClosed(StrandlineError):
    """An expectation with ``on_failure: block`` failed, or a check could not run. Gold stays as it was.

    Args:
        is_broken: True: a check could not run. Another attempt may succeed although no row has changed.
    """

    exit_code = 5

    def __init__(self, message: str, *, next_step: str = "", is_broken: bool = False) -> None:
        super().__init__(message, next_step=next_step)
        self.is_broken = is_broken


def install_command(extra: str) -> str:
    """Return the command that installs *extra*, for an error about a missing package.

    I/O: reads where this package was installed from: a checkout, the file of a wheel, a URL, or a package index.
    """
    requirement, is_editable = _requirement(extra)
    return f"pip install {'-e ' if is_editable else ''}{shlex.quote(requirement)}"


def missing_package(error: BaseException) -> ConfigurationError | None:
    """Return the refusal for a package of an extra that is not installed. None: *error* is another one."""
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if package not in _EXTRAS:
        return None
    return ConfigurationError(f"{package} is not installed", next_step=install_command(_EXTRAS[package]))


def _requirement(extra: str) -> tuple[str, bool]:
    """Return the requirement for *extra*, as pip reads it. True: it is an editable installation."""
    name = __name__.partition(".")[0]
    try:
        origin = json.loads(metadata.distribution(name).read_text("direct_url.json") or "{}")
    except metadata.PackageNotFoundError:
        origin = {}
    url = str(origin.get("url", ""))
    local = Path(unquote(urlsplit(url).path)) if url.startswith("file:") else None
    if local is not None and local.exists():
        return f"{local}[{extra}]", bool(origin.get("dir_info", {}).get("editable"))
    if url and local is None:
        scheme = f"{origin['vcs_info']['vcs']}+" if "vcs_info" in origin else ""
        return f"{name}[{extra}] @ {scheme}{url}", False
    return f"{name}[{extra}]", False


def missing_right(error: Exception) -> ConfigurationError | None:
    """Return the refusal for a principal that lacks a right, by the error's SQLSTATE. None: *error* is another one."""
    sql_state = getattr(error, "getSqlState", lambda: None)()
    if sql_state != _INSUFFICIENT_PRIVILEGE:
        return None
    return ConfigurationError(f"the catalog refuses this principal: {one_line(error)}", next_step=RIGHTS)


def one_line(error: Exception) -> str:
    """Return *error* as one line, without values of documents.

    Spark adds the plan, the query and a stack trace below its first line, and they quote values of documents.
    """
    return str(own_error) if (own_error := strandline_error(error)) is not None else without_values(error)


def shown_error(error: Exception, *, show_keys: bool) -> str:
    """Return *error* as one line for another system, without values of documents.

    Args:
        show_keys: Errors name documents by their key (``logging.show_keys``). The line is only the error's kind then.
            So it is for a closed gate, whose text shows what the expectations saw.
    """
    return type(error).__name__ if show_keys or isinstance(error, QualityGateClosed) else one_line(error)


def strandline_error(error: BaseException) -> StrandlineError | None:
    """Return the error of Strandline behind *error*. None: there is none.

    It is *error* itself, or what a Spark job failed with: an error of Strandline that was raised on a worker, or a
    worker's Python that lacks a package, has another version, or is not there.
    """
    if isinstance(error, StrandlineError):
        return error
    if (raised := raised_by_worker(error)) is None:
        return None
    name, text = raised
    if (problem := _problem_of_python(name, text)) is not None:
        return ConfigurationError(
            f"a Spark worker {problem}",
            next_step=f"correct the Python of the workers (PYSPARK_PYTHON names it), then {_ASK_WORKERS}",
        )
    for kind in _kinds(StrandlineError):
        if name == f"{kind.__module__}.{kind.__name__}":
            message, _, next_step = text.partition(" → ")
            return kind(f"on a Spark worker: {message}", next_step=next_step or _ASK_WORKERS)
    return None


def _problem_of_python(name: str, message: str) -> str | None:
    if name == ModuleNotFoundError.__name__ and (module := _NO_MODULE.match(message)) is not None:
        package = module[1].partition(".")[0]
        return "lacks this package (strandline)" if package == "strandline" else f"lacks the Python package {package}"
    if message.startswith("[PACKAGE_NOT_INSTALLED] "):
        return f"lacks a Python package: {message.partition('] ')[2]}"
    if name == FileNotFoundError.__name__ and not message.startswith("["):
        return f"has no program {message}"
    if (versions := _VERSIONS.search(message)) is not None:
        return f"has Python {versions[1]}, and this process has {versions[2]}"
    return None


def _kinds(kind: type[StrandlineError]) -> Iterator[type[StrandlineError]]:
    yield kind
    for subclass in kind.__subclasses__():
        yield from _kinds(subclass)
