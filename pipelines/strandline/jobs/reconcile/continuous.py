"""Continuous proof: a walk over the `_id` ranges of all collections, some of them at a time, at a limited pace."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from strandline.control.proof import ProofRange, ProofStatus, ProofTable
from strandline.control.sources import state_of
from strandline.errors import ConfigurationError, RetriableError, one_line
from strandline.jobs.lake_context import PipelineContext
from strandline.jobs.offsets.life_cycle import last_offset, required_offset
from strandline.jobs.reconcile.proof_plan import ProofPlan, Share
from strandline.jobs.reconcile.run_reconcile import OpenedComparisons, opened_comparisons
from strandline.jobs.reconcile.source_digests import RangeRead
from strandline.jobs.silver.table_names import table_of
from strandline.model.snapshot_policy import Pace
from strandline.model.table_schemas import RECONCILE
from strandline.source.client import AnyClient, operation_time

_log = logging.getLogger("strandline.reconcile")
_RESTS_PER_COMPARISON: Final = 4
"""Seconds of rest for each second in which silver is read: at most a fifth of this process's time."""
_IDLE_SECONDS: Final = 10.0
_WAIT_SECONDS: Final = 60.0


@dataclass(frozen=True)
class ProofStep:
    """Result of one step."""

    ranges: int = 0
    """Ranges that were compared."""
    documents: int = 0
    """Documents of the source in these ranges."""
    differences: int = 0
    repaired: int = 0
    rest_seconds: float = _IDLE_SECONDS
    """Time until the next step: the budget is kept, and silver is not read all the time."""


@dataclass(frozen=True)
class _Outcome:
    """Comparison of one share."""

    share: Share
    reads: Mapping[int, RangeRead]
    positions: Mapping[int, str]
    """Position at which each range was compared."""
    differences: Counter[int]

    @property
    def documents(self) -> int:
        return sum(one.sum.documents for one in self.reads.values())

    def documents_read(self) -> int:
        """Return the number of documents that the source has sent: differing ranges are read again, and once more."""
        settled = sum(one.sum.documents for number, one in self.reads.items() if self.positions[number] != one.position)
        return self.documents + (1 + bool(self.differences)) * settled


@dataclass(frozen=True)
class ContinuousProof:
    """Walk over all ranges. Its only memory is ``control.proof``.

    Args:
        budget: Documents per second that are read from the source.
        repairs: Read documents that differ into bronze again.
        collections: ``db.collection``. Empty: all.
        rest: Minimum time between two comparisons of one range.
        step_seconds: Time for which one step reads the source.
    """

    ctx: PipelineContext
    budget: int
    repairs: bool
    collections: Sequence[str] = ()
    rest: timedelta = timedelta(minutes=1)
    step_seconds: float = 60.0

    @property
    def table(self) -> ProofTable:
        return ProofTable(self.ctx.tables, self.ctx.settings.source.name)

    def step(self, stop: threading.Event) -> ProofStep:
        """Compare the ranges that are due, as many as the budget allows in `step_seconds`.

        A source that is paused or stopped, or whose snapshot is running, is not asked.

        I/O: reads source and silver; writes ``control.proof``, ``control.reconcile`` and, with *repairs*, bronze.
        Calling again is safe: after a failure the same ranges are due.

        Args:
            stop: Ends the step after the range in progress when it is set.

        Raises:
            RetriableError: The lake is behind the source, or the source does not answer.
        """
        last, state = last_offset(self.ctx), state_of(self.ctx.tables, self.ctx.settings.source.name).state
        if last is None or last.snapshot_id is not None or state != "running":
            return ProofStep()
        began, pace = time.monotonic(), Pace(self.budget)
        wait_seconds = _WAIT_SECONDS + self.ctx.settings.silver.max_lag_seconds
        with opened_comparisons(self.ctx, wait_seconds, stop) as lake:
            shares, is_all = ProofPlan(lake, self.table, pace, self.rest).shares(self.collections, self.step_seconds)
            outcomes, comparing = _outcomes(lake, shares, stop)
        if not outcomes:
            return ProofStep()
        repaired = sum(self._repair(lake, outcome) for outcome in outcomes) if self.repairs else 0
        self._save(lake, outcomes)
        in_budget = began + pace.seconds_for(sum(map(_Outcome.documents_read, outcomes))) - time.monotonic()
        return ProofStep(
            ranges=sum(len(outcome.reads) for outcome in outcomes),
            documents=sum(outcome.documents for outcome in outcomes),
            differences=sum(outcome.differences.total() for outcome in outcomes),
            repaired=repaired,
            rest_seconds=max(
                in_budget, _RESTS_PER_COMPARISON * comparing, self.rest.total_seconds() if is_all else 0.0
            ),
        )

    def _repair(self, lake: OpenedComparisons, outcome: _Outcome) -> int:
        if not outcome.differences:
            return 0
        return outcome.share.comparison.repair(lake.writer, lake.selection.fields)

    def _save(self, lake: OpenedComparisons, outcomes: Sequence[_Outcome]) -> None:
        """I/O: writes the ranges, then deletes ranges of earlier plans, and differences that were compared again."""
        rows = [row for outcome in outcomes for row in self._rows(lake, outcome)]
        self.table.write(rows)
        present = {row.run_id for row in rows}
        for outcome in outcomes:
            share, namespace = outcome.share, outcome.share.comparison.namespace
            if outcome.differences:
                _log.warning("%s: %d differences from the source", namespace, outcome.differences.total())
            if len(share.old) > len(share.plan):
                self.table.delete(namespace, len(share.plan))
            needed = present | {row.run_id for row in share.plan if row.number not in outcome.reads}
            for run_id in {row.run_id for row in share.old} - needed:
                own = (("run_id", "=", run_id), ("db", "=", namespace.db), ("collection", "=", namespace.collection))
                self.ctx.tables.delete_rows(RECONCILE, *own, ("repaired_at", "is null", None))

    def _rows(self, lake: OpenedComparisons, outcome: _Outcome) -> list[ProofRange]:
        """Return the rows to write: of the ranges that were compared, and of all if the plan is new."""
        rows = [
            row.after(
                lake.at,
                lake.run_id,
                documents=outcome.reads[row.number].sum.documents,
                position=outcome.positions[row.number],
                differences=outcome.differences[row.number],
                due_again=self.repairs,
            )
            if row.number in outcome.reads
            else row
            for row in outcome.share.plan
        ]
        is_new = outcome.share.plan is not outcome.share.old
        return rows if is_new else [row for row in rows if row.number in outcome.reads]


def prove(
    ctx: PipelineContext,
    stop: threading.Event,
    *,
    collections: Sequence[str] = (),
    repairs: bool = False,
    report: Callable[[ProofStep], None] = lambda _: None,
) -> ProofStatus | None:
    """Compare at the pace of ``proof.budget`` until *stop* is set. Return the proof of all ranges; None: there is none.

    I/O: as `ContinuousProof.step`. Calling again is safe, and continues.

    Args:
        collections: ``db.collection``. Empty: all.
        repairs: Read documents that differ into bronze again, as with ``proof.repair``.
        report: Called after each step that has compared ranges.

    Raises:
        ConfigurationError: There is no budget, or as `prove_until`.
    """
    settings = ctx.settings.proof
    proof = ContinuousProof(ctx, required_budget(settings.budget), repairs or settings.repair, collections)
    prove_until(stop, proof, report)
    return proof.table.status()


def prove_until(stop: threading.Event, proof: ContinuousProof, report: Callable[[ProofStep], None]) -> None:
    """Repeat steps until *stop* is set. A step that can be repeated may fail.

    Raises:
        ConfigurationError: Nothing was captured yet, a collection is unknown, or bronze is from another deployment.
    """
    required_offset(proof.ctx)
    rest_seconds = 0.0
    while not stop.wait(rest_seconds):
        try:
            step = proof.step(stop)
        except RetriableError as error:
            if stop.is_set():
                return
            _log.warning("%s; the comparison continues in %.0f s", one_line(error), _IDLE_SECONDS)
            rest_seconds = _IDLE_SECONDS
            continue
        rest_seconds = step.rest_seconds
        if step.ranges:
            report(step)


def required_budget(budget: int | None) -> int:
    """Return *budget*. Raises ConfigurationError if there is none."""
    if budget is None:
        raise ConfigurationError(
            "proof.budget is not set: a continuous comparison needs its documents per second",
            next_step="set proof.budget, for example --set proof.budget=1000",
        )
    return budget


def _outcomes(lake: OpenedComparisons, shares: Sequence[Share], stop: threading.Event) -> tuple[list[_Outcome], float]:
    """Read the source, wait for silver, and compare. Return the outcomes, and the seconds that the last part took.

    No outcomes: *stop* was set, or there are no shares.
    """
    reads = [_read(lake.client, share, stop) for share in shares]
    if stop.is_set() or not shares:
        return [], 0.0
    last_read = max(one.at for of_share in reads for one in of_share.values())
    lake.catch_up.silver(lake.catch_up.bronze(last_read), [share.comparison.namespace for share in shares])
    began = time.monotonic()
    outcomes = [_outcome(share, of_share) for share, of_share in zip(shares, reads, strict=True)]
    return outcomes, time.monotonic() - began


def _read(client: AnyClient, share: Share, stop: threading.Event) -> dict[int, RangeRead]:
    """Return the digest of each range, each at its own cluster time. I/O: reads the source at the pace."""
    reads: dict[int, RangeRead] = {}
    for number in share.numbers:
        if stop.is_set():
            break
        reads |= share.comparison.read_source(operation_time(client), [number])
    return reads


def _outcome(share: Share, reads: Mapping[int, RangeRead]) -> _Outcome:
    """Compare the documents and the columns of one share. I/O: as `Comparison.compare`."""
    comparison = share.comparison
    differing, through = comparison.compare(reads)
    wrong, _ = comparison.compare_columns(table_of(comparison.ctx, comparison.namespace))
    positions = {number: through if number in differing else one.position for number, one in reads.items()}
    return _Outcome(share, reads, positions, comparison.differences_by_range() if through or wrong else Counter())
