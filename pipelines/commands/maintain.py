"""``strandline maintain``: upkeep of the tables."""

from __future__ import annotations

from dataclasses import asdict

import typer

from pipelines.commands.terminal import AsJson, open_pipeline, print_rows


def maintain(context: typer.Context, as_json: AsJson = False) -> None:
    """Compact small files, remove those that no version within maintenance.retention_hours needs, set how far logs go back, and delete
    tombstones and rows of control tables that are older than their retention under maintenance."""
    from pipelines.jobs.maintenance.job import run_maintain

    print_rows([asdict(maintained) for maintained in run_maintain(open_pipeline(context))], as_json=as_json)
