"""Everything in one process: capture beside silver and gold."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from pipelines.errors import QualityGateClosed
from pipelines.gold.publish import GoldResult
from pipelines.jobs.capture.job import run_capture
from pipelines.jobs.capture_session import Report
from pipelines.jobs.context import JobContext
from pipelines.jobs.gold.job import refresh_gold
from pipelines.jobs.migration import migrate
from pipelines.jobs.silver.collection import SilverResult
from pipelines.jobs.silver.job import SilverMemory, run_silver
from pipelines.model.table_schemas import bronze_table

_log = logging.getLogger("strandline.run")
_IDLE_SECONDS = 1.0


def run_once(ctx: JobContext, *, report: Report, silver_report: Callable[[SilverResult], None]) -> list[GoldResult]:
    """I/O: capture to the source's present, then silver, the quality gate, gold. Each step goes on where it was; calling again is safe.

    Returns:
        What became of gold, as `run_gold`: a node that failed is no exception, for the others are built.

    Raises:
        QualityGateClosed: Bronze and silver are up to date, gold stays as it is.
    """
    run_capture(ctx, once=True, report=report)
    run_silver(ctx, report=silver_report)
    return refresh_gold(ctx)  # without news as well: a suite or a SQL file may have been corrected


def run_continuously(
    ctx: JobContext, stop: threading.Event, *, report: Report, silver_report: Callable[[SilverResult], None]
) -> None:
    """I/O: capture in a thread; silver and gold follow as new versions of bronze appear. Ends when *stop* is set or capture fails.

    Raises:
        QualityGateClosed: At the end, if gold is held then. Until then a closed gate is logged, and capture and silver go on.
    """
    migrate(ctx)  # before its threads ask for it side by side
    closed: QualityGateClosed | None = None
    bronze, memory = bronze_table(ctx.settings.source.name), SilverMemory()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="strandline-capture") as pool:
        capture = pool.submit(run_capture, ctx, stop=stop, report=report)
        try:
            while not capture.done() and not stop.wait(_IDLE_SECONDS):
                if ctx.tables.exists(bronze) and run_silver(ctx, report=silver_report, memory=memory):
                    closed = _gold_or_closed(ctx)
        finally:
            stop.set()
        result = capture.result()
    _log.info("captured %d events and %d documents, last batch %d", result.events, result.documents, result.batch)
    if closed is not None:
        raise closed


def _gold_or_closed(ctx: JobContext) -> QualityGateClosed | None:
    try:
        refresh_gold(ctx)
    except QualityGateClosed as closed:
        _log.error("gold is held: %s", closed)
        return closed
    return None
