"""``strandline maintain``: table maintenance."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from strandline.commands.terminal import AsJson, opener, print_rows


def maintain(
    context: typer.Context,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count the events that would go from bronze. Change nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compact files, vacuum, set log retention, and purge old tombstones, control rows and events.

    The settings under `maintenance` give each retention time.
    """
    from strandline.jobs.maintenance.run_maintain import count_removable_events, run_maintain

    ctx = opener(context, briefly=False).with_spark()
    results = count_removable_events(ctx) if dry_run else run_maintain(ctx)
    print_rows([asdict(result) for result in results], as_json=as_json)
