"""``strandline metrics``: the state of the pipeline for Prometheus."""

from __future__ import annotations

import typer

from strandline.commands.terminal import open_to_look


def metrics(context: typer.Context) -> None:
    """Print the figures of `status` in Prometheus' text format."""
    from strandline.jobs.operations.metrics import exposition

    typer.echo(exposition(open_to_look(context)), nl=False)
