"""``strandline maintain``: table maintenance."""

from __future__ import annotations

from dataclasses import asdict

import typer

from strandline.commands.terminal import AsJson, open_pipeline, print_rows


def maintain(context: typer.Context, as_json: AsJson = False) -> None:
    """Compact files, vacuum, set log retention, and purge old tombstones and control rows.

    The settings under `maintenance` give each retention time.
    """
    from strandline.jobs.maintenance.job import run_maintain

    print_rows([asdict(maintained) for maintained in run_maintain(open_pipeline(context))], as_json=as_json)
