"""Everything in one process: capture beside silver and gold."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from pipelines.jobs.capture import Report, run_capture
from pipelines.jobs.context import JobContext
from pipelines.jobs.gold import run_gold
from pipelines.jobs.silver import run_silver
from pipelines.jobs.silver_collection import SilverResult
from pipelines.model.columns import bronze_table

_log = logging.getLogger("strandline.run")
_IDLE_SECONDS = 1.0


def run_once(ctx: JobContext, *, report: Report, silver_report: Callable[[SilverResult], None]) -> None:
    """I/O: capture to the source's present, then silver, then gold. Each step goes on where it was; calling again is safe."""
    run_capture(ctx, once=True, report=report)
    if run_silver(ctx, report=silver_report):
        run_gold(ctx)


def run_continuously(ctx: JobContext, stop: threading.Event, *, report: Report, silver_report: Callable[[SilverResult], None]) -> None:
    """I/O: capture in a thread; silver and gold follow as new versions of bronze appear. Ends when *stop* is set or capture fails."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="strandline-capture") as pool:
        capture = pool.submit(run_capture, ctx, stop=stop, report=report)
        try:
            while not capture.done() and not stop.wait(_IDLE_SECONDS):
                if ctx.tables.exists(bronze_table(ctx.settings.source.name)) and run_silver(ctx, report=silver_report):
                    run_gold(ctx)
        finally:
            stop.set()
        result = capture.result()
    _log.info("captured %d events and %d documents, last batch %d", result.events, result.documents, result.batch)
