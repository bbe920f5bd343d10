"""Every error that Strandline raises on purpose.

    StrandlineError
    ├── RetriableError          the same call may succeed later                     exit 75
    ├── TerminalError           it will not, until a person changes something
    │   ├── ConfigurationError  conf, environment, options, privileges, topology    exit 2
    │   ├── ResumePointLost     the source no longer has the history we need        exit 3
    │   ├── ContractError       data or a table is not what it must be              exit 4
    │   └── FencedError         another writer owns the source's bronze table       exit 6
    └── QualityGateClosed       a blocking expectation failed                       exit 5

A message is one line: what happened, why, and the next command to run. No secret and no value of a document stands in
one.
"""

from __future__ import annotations

from pipelines.plain_text import printable, without_values


class StrandlineError(Exception):
    """Base of the tree. *next_step* is the command or change that helps; it closes the printed line."""

    exit_code = 1

    def __init__(self, message: str, *, next_step: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step

    def __str__(self) -> str:
        whole = f"{self.message} → {self.next_step}" if self.next_step else self.message
        return printable(
            " ".join(whole.split())
        )  # a name or a driver's text may hold line breaks and escapes; the printed line may not


class RetriableError(StrandlineError):
    """The source or the lake did not answer. Nothing was lost; calling again is safe."""

    exit_code = 75


class TerminalError(StrandlineError):
    """Calling again without a change ends the same way. Nothing was lost."""


class ConfigurationError(TerminalError):
    """A setting, an option, a privilege or the source's topology is wrong. Nothing was written."""

    exit_code = 2


class ResumePointLost(TerminalError):
    """The source cannot resume from the committed token. Bronze is intact; the gap is not yet recorded."""

    exit_code = 3


class ContractError(TerminalError):
    """A table or a row breaks its contract: an unexpected schema, a hole in the batches, a missing column.

    The table is left at its last good version; calling again is safe and fails the same way.
    """

    exit_code = 4


class FencedError(TerminalError):
    """Another writer committed the batch that this one was about to commit.

    The loser wrote nothing and has lost nothing: the winner read the same stream. Start only one writer per source.
    """

    exit_code = 6


class QualityGateClosed(StrandlineError):
    """An expectation with ``on_failure: block`` failed. Gold stays at its last good state; calling again is safe."""

    exit_code = 5


def with_extra(extra: str) -> str:
    """The next step where what *extra* of the distribution brings is not installed. It is in no index yet."""
    return f"pip install '.[{extra}]' in a checkout, or the wheel's file with [{extra}] behind it"


def one_line(error: Exception) -> str:
    """An error as one line.

    Spark adds the plan, the query and a stack trace below its first line, and values of documents in it.
    """
    return str(error) if isinstance(error, StrandlineError) else without_values(error)
