"""``strandline metrics``: the state of the pipeline for Prometheus."""

from __future__ import annotations

import typer

from pipelines.commands.terminal import open_briefly


def metrics(context: typer.Context) -> None:
    """Print the figures of `status` in Prometheus' text format."""
    from pipelines.jobs.operations.metrics import exposition

    typer.echo(exposition(open_briefly(context)), nl=False)
