"""``strandline metrics``: the state of the pipeline for Prometheus."""

from __future__ import annotations

import typer

from strandline.commands.terminal import opener


def metrics(context: typer.Context) -> None:
    """Print the figures of `status` in Prometheus' text format."""
    from strandline.jobs.operations.metrics import exposition

    typer.echo(exposition(opener(context).for_silver_counts()), nl=False)
