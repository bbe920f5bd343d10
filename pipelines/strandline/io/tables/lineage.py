"""Runs of jobs, told to a receiver of lineage. Without a receiver nothing is told, and no library is imported."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol, TypeVar

from strandline.errors import one_line, shown_error
from strandline.io.tables.table_store import TableStore
from strandline.model.lineage import Input, Job, Output, RunReport, RunState
from strandline.model.tables import TableName

_log = logging.getLogger("strandline.telemetry")
T = TypeVar("T")


class Receiver(Protocol):
    """Receiver of reports. `strandline.io.telemetry.lineage_sender` has the one that sends them."""

    @property
    def show_keys(self) -> bool:
        """True: errors may hold keys of documents, so that only their kind is told."""

    def tell(self, report: RunReport) -> None:
        """Take *report*. It does not wait, and it raises no error."""


class _Process:
    """The receiver of this process. None: nothing is told."""

    receiver: Receiver | None = None


def tell_lineage_to(receiver: Receiver | None) -> None:
    """Tell the runs of this process to *receiver*. None: tell no more runs."""
    _Process.receiver = receiver


def is_told() -> bool:
    """Return True if runs are told. Gather what only a report needs if it is True."""
    return _Process.receiver is not None


@dataclass
class LineageRun:
    """One run of a job. `inputs` and `outputs` may change between two reports."""

    job: Job
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()
    run_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    def tell(self, state: RunState, error: Exception | None = None) -> None:
        """Tell the state of the run at this moment, if runs are told."""
        if (receiver := _Process.receiver) is None:
            return
        text = None if error is None else shown_error(error, show_keys=receiver.show_keys)
        at = datetime.now(UTC)
        receiver.tell(RunReport(self.job, self.run_id, state, at, self.inputs, self.outputs, text))


@contextmanager
def told_run(run: LineageRun) -> Iterator[LineageRun]:
    """Tell START before the block; COMPLETE after it, or FAIL with its error."""
    run.tell("START")
    try:
        yield run
    except Exception as error:
        run.tell("FAIL", error)
        raise
    run.tell("COMPLETE")


def gathered(what: str, gather: Callable[[], T]) -> T | None:
    """Return the result of *gather*. None: it failed, and one line in the log says so. A report never ends a run."""
    try:
        return gather()
    except Exception as error:  # noqa: BLE001  # why: whatever fails here, the table itself is written
        _log.warning("a lineage event lacks the %s: %s", what, one_line(error))
        return None


def columns_of(tables: TableStore, table: TableName) -> dict[str, str]:
    """Return the type of each column of *table*; empty if it cannot be read. I/O: reads the table's schema."""
    return gathered(f"columns of {table}", lambda: tables.column_types(table)) or {}
