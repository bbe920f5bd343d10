"""``strandline doctor``: check a configuration before a run."""

from __future__ import annotations

import typer

from pipelines.commands.terminal import open_pipeline, print_record


def doctor(context: typer.Context) -> None:
    """Check source, position, lake and configuration. Nothing is written."""
    from pipelines.jobs.operations.doctor import diagnose

    print_record(diagnose(open_pipeline(context)))
