"""``strandline run | capture | silver``: the pipeline, or one layer of it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.commands.gold import exit_where_failed
from strandline.commands.telemetry import telemetry
from strandline.commands.terminal import at_terminal, lake_settings, opener, out, print_rows, stop_on_signal
from strandline.model.engines import SPARK

if TYPE_CHECKING:
    from strandline.io.telemetry.live_state import CaptureState
    from strandline.jobs.lake_context import PipelineContext
    from strandline.jobs.run import RunResult
    from strandline.jobs.silver.collection import SilverResult
    from strandline.settings.configuration import Settings

Once = Annotated[
    bool, typer.Option("--once", help="Stop after everything that the source had done before the start is processed.")
]


HealthPort = Annotated[
    int | None,
    typer.Option(min=1, max=65_535, help="TCP port of /livez, /readyz, /metrics, /state, /log, beside metrics.port."),
]


def run(context: typer.Context, once: Once = False, health_port: HealthPort = None) -> None:
    """Run capture, silver and gold in one process."""
    from strandline.io.telemetry.live_state import CaptureState

    state, pipeline_open = CaptureState(), threading.Event()
    if not once:
        what = "capture finishes its batch, and silver and gold the table in progress"
        stop = _stop_of_service(what, state, pipeline_open.is_set)  # before the imports, which take a second
        from strandline.io.spark.allocators import give_memory_back

        give_memory_back()
    from strandline.jobs.lake_opener import LakeOpener
    from strandline.jobs.run import open_pipeline, run_continuously, run_once

    settings = _served_settings(context, health_port, state)
    with telemetry(settings):
        lake = LakeOpener(settings, briefly=once)
        if not once:

            def opening() -> PipelineContext:
                ctx = open_pipeline(lake)
                pipeline_open.set()
                return ctx

            run_continuously(
                lake.for_capture(),
                opening,
                stop,
                briefly=at_terminal(),
                report=_log_landed,
                silver_report=_log_merged,
                state=state,
            )
            return
        opening_once = partial(open_pipeline, lake)
        result = run_once(lake.for_capture(), opening_once, report=_log_landed, silver_report=_log_merged)
        logging.getLogger("strandline.run").info("written by: %s", result.engines)
    _print_result(result)
    exit_where_failed(result.gold)


def _print_result(result: RunResult) -> None:
    """Print what a run has captured, and one row for each silver table that it has changed."""
    captured = result.capture
    out.print(f"bronze: {captured.events:,} changes and {captured.documents:,} documents, last batch {captured.batch}")
    if result.silver:
        print_rows([_row(merged) for merged in result.silver])


def _row(result: SilverResult) -> dict[str, object]:
    return {
        "collection": str(result.namespace),
        "table": str(result.table),
        "new": f"{result.inserted:,}",
        "changed": f"{result.updated:,}",
        "seconds": f"{result.seconds:.1f}",
        "by": _engines(result),
    }


def capture(context: typer.Context, once: Once = False, health_port: HealthPort = None) -> None:
    """Append change events and snapshots to bronze."""
    from strandline.io.telemetry.live_state import CaptureState

    state = CaptureState()
    stop = _stop_of_service("the batch and the chunks in progress are finished first, within seconds", state)
    from strandline.jobs.capture.run_capture import run_capture
    from strandline.jobs.lake_opener import LakeOpener

    settings = _served_settings(context, health_port, state)
    with telemetry(settings):
        lake = LakeOpener(settings, briefly=once).for_capture()
        result = run_capture(lake, once=once, briefly=once or at_terminal(), stop=stop, report=_log_landed, state=state)
    out.print(
        f"bronze: {result.events:,} events and {result.documents:,} snapshot documents landed,"
        f" last batch {result.batch}, by {result.engine}"
    )


def silver(
    context: typer.Context,
    once: Annotated[  # noqa: ARG001  # why: scripts may name it, as of capture and run
        bool, typer.Option("--once", help="No effect: silver always stops after it has merged bronze.")
    ] = False,
    collection: Annotated[
        list[str] | None,
        typer.Option(help="Merge only this collection, as db.collection. Repeatable. Default: all."),
    ] = None,
) -> None:
    """Merge new rows of bronze into silver, then stop. `strandline run` repeats this."""
    from strandline.jobs.silver.run_silver import run_silver

    lake = opener(context)
    with telemetry(lake.settings):
        results = run_silver(lake.for_silver(), collections=named(collection))
    for result in results:
        versions = f", {result.versions:,} versions" if result.versions else ""
        versions += f", {result.elements:,} elements" if result.elements else ""
        out.print(
            f"{result.table}: {result.inserted:,} inserted, {result.updated:,} updated{versions}"
            f" in {result.seconds:.1f} s, by {_engines(result)}"
        )


def _engines(result: SilverResult) -> str:
    return result.engine if not result.versions or result.engine == SPARK else f"{result.engine}, versions by {SPARK}"


def named(collections: Sequence[str] | None) -> list[str]:
    """Return the collections that are named. A job's parameter that nobody has set is an empty text."""
    return [name for name in collections or () if name]


def _stop_of_service(what: str, state: CaptureState, has_work: Callable[[], bool] = lambda: False) -> threading.Event:
    """Return the event of `stop_on_signal`. Tell systemd how the capture is, if systemd started this process for that.

    That is a unit of ``Type=notify``.

    Args:
        what: Description of the work that is finished first.
        state: Observer of the capture.
        has_work: Returns True if there is work beside capture.
    """
    from strandline.io.telemetry.service_manager import ServiceManager

    def has_begun() -> bool:
        return state.is_bronze_open or has_work()

    if (manager := ServiceManager.from_environment()) is None:
        return stop_on_signal(what, has_begun=has_begun)
    state.on_beat = manager.beat
    return stop_on_signal(what, manager.stopping, has_begun=has_begun)


def _served_settings(context: typer.Context, health_port: int | None, state: CaptureState) -> Settings:
    """Return the settings. Serve metrics at ``metrics.port`` and at *health_port*, if they are set."""
    from strandline.io.telemetry.metrics_server import serve
    from strandline.jobs.capture.run_capture import check_capture_settings

    settings = lake_settings(context)
    check_capture_settings(settings)  # before the lake is opened, and before Spark starts
    labels = {"source": settings.source.name, **settings.metrics.tags}
    ports = {port for port in (settings.metrics.port, health_port) if port is not None}
    for port in ports:  # before Spark starts: a port in use is told at once
        serve(port, settings.metrics.address, labels, state, max_tables=settings.metrics.max_tables)
    return settings


def _log_landed(what: str, count: int) -> None:
    logging.getLogger("strandline.capture").info("bronze: %s %s landed", f"{count:,}", what)


def _log_merged(result: SilverResult) -> None:
    logging.getLogger("strandline.silver").info(
        "%s: %d inserted, %d updated in %.1f s, by %s",
        *(result.table, result.inserted, result.updated, result.seconds, _engines(result)),
    )
