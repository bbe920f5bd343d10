"""The run job: capture, silver and gold in one process."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from typing import Final, NoReturn

from strandline.errors import one_line
from strandline.gold.results import GoldResult
from strandline.io.telemetry.live_state import CaptureState
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.capture.stream_loop import CaptureResult
from strandline.jobs.capture_session import Report
from strandline.jobs.gold.planned import is_defined
from strandline.jobs.gold.refresh import refresh_gold
from strandline.jobs.lake_context import LakeContext, LazyContext, PipelineContext
from strandline.jobs.lake_opener import LakeOpener
from strandline.jobs.operations.engines import engines_of_results
from strandline.jobs.reconcile.continuous import ContinuousProof
from strandline.jobs.service import Layer, Transformations
from strandline.jobs.silver.collection import SilverResult
from strandline.jobs.silver.run_silver import SilverMemory, run_silver
from strandline.jobs.source_connection import retry_policy
from strandline.model.table_schemas import bronze_table
from strandline.model.tables import TableName

_log = logging.getLogger("strandline.run")
_IDLE_SECONDS = 1.0
_DOCUMENTS_AT_ONCE: Final = 200_000
"""Documents of a snapshot that are worth a silver run while the snapshot goes on."""


@dataclass(frozen=True)
class RunResult:
    """Results of one run through all layers."""

    capture: CaptureResult
    silver: tuple[SilverResult, ...]
    """One for each table that had new rows, over all silver runs."""
    gold: tuple[GoldResult, ...]
    """One for each view or table. A failed one raised no error, and the others were built."""

    @property
    def engines(self) -> str:
        """Engines of the tables that were written: ``bronze: delta-rs; silver: Spark 3 tables, delta-rs 14``."""
        return engines_of_results(self.capture, self.silver, self.gold)


def open_pipeline(lake: LakeOpener) -> PipelineContext:
    """Return the context of silver and gold.

    I/O: starts Spark now if gold needs it, and otherwise with the need. Without PySpark, silver is written first.
    """
    needs_spark = is_defined(lake.settings) and find_spec("pyspark") is not None
    return lake.with_spark() if needs_spark else lake.for_silver()


def run_once(
    lake: LakeContext,
    opening: Callable[[], PipelineContext],
    *,
    report: Report,
    silver_report: Callable[[SilverResult], None],
) -> RunResult:
    """Capture up to the source's present, then run silver, the quality gate and gold.

    Without Spark, silver begins while a snapshot is read.

    I/O: reads the source; writes bronze, silver, gold and the control tables.

    Args:
        lake: Context of capture.
        opening: Opens the context of silver and gold. Called in a thread: capture does not wait for Spark.

    Raises:
        QualityGateClosed: Bronze and silver are up to date. Gold is unchanged.

    Effects on failure:
        Each step continues where it stopped. Calling again is safe.
    """
    early = _SilverBesideSnapshot(report, silver_report)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="strandline-silver-run") as pool:
        future = pool.submit(lambda: early.follow(opening()))
        try:
            captured = run_capture(lake, once=True, report=early.count)
        finally:
            early.end()
        ctx = future.result()
    silver = [*early.results, *run_silver(ctx, report=silver_report, memory=early.memory)]
    gold = refresh_gold(ctx)  # even without new rows: a suite or a SQL file may have changed
    return RunResult(captured, tuple(_by_table(silver)), tuple(gold))


def _by_table(results: Sequence[SilverResult]) -> Iterable[SilverResult]:
    """Return one result for each table, over all of its runs."""
    whole: dict[TableName, SilverResult] = {}
    for result in results:
        before = whole.get(result.table)
        whole[result.table] = result if before is None else before.followed_by(result)
    return whole.values()


class _NeedsSpark(Exception):
    """Spark must merge the rows."""


@dataclass
class _SilverBesideSnapshot:
    """Silver runs while a snapshot is read, each after so many more documents. They start no Spark.

    Several threads call `count`.
    """

    report: Report
    silver_report: Callable[[SilverResult], None]
    memory: SilverMemory = field(default_factory=SilverMemory, init=False)
    results: list[SilverResult] = field(default_factory=list, init=False)
    _documents: int = field(default=0, init=False)
    _is_due: threading.Event = field(default_factory=threading.Event, init=False)
    _has_ended: bool = field(default=False, init=False)

    def count(self, what: str, rows: int) -> None:
        """Report *rows* that capture has committed. Let silver run if they are worth it."""
        self.report(what, rows)
        if what == "documents":
            self._documents += rows
            if self._documents >= _DOCUMENTS_AT_ONCE:
                self._is_due.set()

    def end(self) -> None:
        """Begin no other silver run."""
        self._has_ended = True
        self._is_due.set()

    def follow(self, ctx: PipelineContext) -> PipelineContext:
        """Run silver whenever it is due, until `end`. Return *ctx*.

        An error ends these runs only: the run after capture repeats the work, and raises it if it lasts.
        """
        if not isinstance(ctx, LazyContext) or ctx.settings.silver.history != "none":
            return ctx
        without_spark = replace(ctx, with_spark=_refuse_spark)
        while self._is_due.wait() and not self._has_ended:
            self._is_due.clear()
            self._documents = 0
            try:
                run_silver(without_spark, report=self._keep, memory=self.memory)
            except Exception as error:  # noqa: BLE001  # why: capture goes on, and silver is run again after it
                _log.info("silver is merged after capture: %s", one_line(error))
                return ctx
        return ctx

    def _keep(self, result: SilverResult) -> None:
        self.results.append(result)
        self.silver_report(result)


def _refuse_spark() -> NoReturn:
    raise _NeedsSpark("only Spark can merge it")


def run_continuously(
    lake: LakeContext,
    opening: Callable[[], PipelineContext],
    stop: threading.Event,
    *,
    briefly: bool = False,
    report: Report,
    silver_report: Callable[[SilverResult], None],
    state: CaptureState | None = None,
) -> None:
    """Capture in a thread, gold in another one. Run silver whenever bronze has a new version.

    With `proof.budget`, another thread compares silver with the source.

    I/O: reads the source; writes bronze, silver, gold and the control tables.

    Args:
        lake: Context of capture.
        opening: Opens the context of silver and gold, after capture has begun.
        stop: Ends the run when it is set. The run also ends when capture fails.
        briefly, state: See `run_capture`.

    Raises:
        QualityGateClosed: The gate is closed at the end. Before the end, a closed gate is logged, and capture and
            silver continue.
        Exception: The last run of silver or gold failed. Before the end, a failure is logged, counted and
            retried with the delays of capture, and capture continues.
    """
    capture_lake, state = lake.for_capture(patient=False), state or CaptureState()
    with ThreadPoolExecutor(max_workers=3, thread_name_prefix="strandline-run") as pool:
        capture = pool.submit(run_capture, capture_lake, briefly=briefly, stop=stop, report=report, state=state)
        try:
            ctx = opening()
            silver = partial(_merge, ctx, SilverMemory(), silver_report)
            policy = retry_policy(capture_lake.settings.capture)
            max_lag = capture_lake.settings.silver.max_lag_seconds
            work = Transformations(silver, partial(refresh_gold, ctx), policy, state, max_lag_seconds=max_lag)
            gold = pool.submit(_repeat, work.step_gold, stop)
            if (budget := ctx.settings.proof.budget) is not None:
                proof = ContinuousProof(ctx, budget, ctx.settings.proof.repair)
                pool.submit(_prove, proof, Layer("proof", policy, time.monotonic, state), stop)
            _repeat(work.step_silver, stop, lambda: capture.done() or gold.done())
        finally:
            stop.set()
        result = capture.result()
        gold.result()
    _log.info("captured %d events and %d documents, last batch %d", result.events, result.documents, result.batch)
    for failure in (work.silver.failure, work.gold.failure, work.closed):
        if failure is not None:
            raise failure


def _repeat(step: Callable[[], None], stop: threading.Event, ended: Callable[[], bool] = lambda: False) -> None:
    """Call *step* again and again until *stop* is set or *ended* is true."""
    while not ended() and not stop.wait(_IDLE_SECONDS):
        step()


def _prove(proof: ContinuousProof, layer: Layer, stop: threading.Event) -> None:
    """Compare silver with the source step by step until *stop* is set. A failure is shown as one of a layer."""
    rest_seconds = _IDLE_SECONDS
    while not stop.wait(rest_seconds):
        rest_seconds = _IDLE_SECONDS
        if not layer.is_due:
            continue
        try:
            rest_seconds = proof.step(stop).rest_seconds
        except Exception as error:  # noqa: BLE001  # why: a comparison that fails must not end capture
            if not stop.is_set():
                layer.failed(error)
        else:
            layer.succeeded()


def _merge(ctx: PipelineContext, memory: SilverMemory, report: Callable[[SilverResult], None]) -> bool:
    """Run silver. Return True if gold may be out of date: a table changed, or this is the first run of the process."""
    if not ctx.tables.exists(bronze_table(ctx.settings.source.name)):
        return False
    is_first = memory.merged_through is None  # a suite or a SQL file may have changed since the last process
    return bool(run_silver(ctx, report=report, memory=memory)) or is_first
