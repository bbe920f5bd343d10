"""``strandline maintain``: table maintenance."""

from __future__ import annotations

from dataclasses import asdict

import typer

from strandline.commands.terminal import AsJson, opener, print_rows


def maintain(context: typer.Context, as_json: AsJson = False) -> None:
    """Compact files, vacuum, set log retention, and purge old tombstones and control rows.

    The settings under `maintenance` give each retention time.
    """
    from strandline.jobs.maintenance.run_maintain import run_maintain

    ctx = opener(context, briefly=False).with_spark()
    print_rows([asdict(result) for result in run_maintain(ctx)], as_json=as_json)
