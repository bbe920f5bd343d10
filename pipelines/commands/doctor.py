"""``strandline doctor``: check a configuration before a run."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.commands.terminal import lake_settings, open_briefly, print_record
from pipelines.errors import ConfigurationError


def doctor(
    context: typer.Context,
    no_spark: Annotated[
        bool,
        typer.Option("--no-spark", help="Do not start Spark. For a lake in a local folder or in an object store."),
    ] = False,
    workers: Annotated[
        bool, typer.Option("--workers", help="Check every Spark worker, too: packages, TLS files, MongoDB, clock.")
    ] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Check only settings, SQL files, cases and suites. Nothing is opened.")
    ] = False,
) -> None:
    """Check source, position, lake and configuration. Nothing is written."""
    if offline:
        from pipelines.jobs.operations.project_check import check_project

        print_record(check_project(lake_settings(context)))
        return
    if not no_spark:
        from pipelines.jobs.operations.doctor import diagnose

        ctx = open_briefly(context)
        print_record(diagnose(ctx))
        if workers:
            from pipelines.jobs.operations.workers import diagnose_workers, require_sound

            found = diagnose_workers(ctx)
            print_record({f"worker {number}": worker for number, worker in enumerate(found, 1)})
            require_sound(found)
        return
    _diagnose_without_spark(context, workers=workers)


def _diagnose_without_spark(context: typer.Context, *, workers: bool) -> None:
    from pipelines.jobs.lake_context import open_without_spark
    from pipelines.jobs.operations.doctor import diagnose

    if workers:
        raise ConfigurationError("--workers asks the workers of Spark, and --no-spark starts none")
    folder = open_without_spark(lake_settings(context))
    if folder is None:
        raise ConfigurationError(
            "--no-spark needs a lake in a folder of this machine (with a local spark.master, and no other Spark in the"
            " environment) or in an object store, and tables that delta-rs can read",
            next_step="strandline doctor",
        )
    print_record(diagnose(folder))
