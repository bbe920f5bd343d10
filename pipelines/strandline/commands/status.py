"""``strandline status``: progress of bronze and contents of silver, once or continuously."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from strandline.commands.offsets import for_people
from strandline.commands.terminal import AsJson, as_lines, as_table, opener, out, print_json, stop_on_signal
from strandline.model.engines import engines_text
from strandline.plain_text import printable, printable_json

if TYPE_CHECKING:
    from strandline.control.proof import ProofStatus
    from strandline.jobs.lake_context import LakeContext
    from strandline.jobs.operations.scheduled_status import ScheduledStatus

_TOO_LONG_FOR_A_LINE = ("resume_token", "snapshot_id")


@dataclass(frozen=True)
class ShownStatus:
    """The state of the pipeline at one moment."""

    at: datetime
    offset: dict[str, Any]
    silver: list[dict[str, Any]]
    errors: dict[str, Any] | None
    """Error counts from the dead letters, for JSON only. None: not read."""
    pages: str | None
    """Path of the Data Docs."""
    orphans: tuple[str, ...] = ()
    """Gold tables whose SQL file is gone."""
    unknown_operations: tuple[str, ...] = ()
    """Operation types of MongoDB that this release does not know."""
    engines: Mapping[str, str] = field(default_factory=dict)
    """Engine that wrote the newest rows of each table, by table."""
    written_by: str = ""
    """Engines, counted by layer."""
    proof: ProofStatus | None = None
    scheduled: tuple[ScheduledStatus, ...] = ()
    """Collections of ``capture.scheduled``."""

    def document(self) -> dict[str, Any]:
        """Return the state for JSON."""
        return {
            "offset": self.offset,
            "unknown_operations": self.unknown_operations,
            "silver": self.silver,
            "gold": {"orphans": self.orphans},
            "engines": self.engines,
            "errors": self.errors,
            "quality": {"pages": self.pages},
            "proof": None if self.proof is None else asdict(self.proof),
            "scheduled": [asdict(entry) for entry in self.scheduled],
        }

    def picture(self) -> Group:
        """Return the state for a terminal."""
        lines = {**for_people(self.offset), "quality_pages": self.pages or "none yet"}
        return Group(as_lines(lines | self._notes()), as_table(self.silver))

    def log(self) -> list[str]:
        """Return log lines: one for the source, one per table. Unknown values are omitted."""
        offset = for_people(self.offset)
        source = {key: value for key, value in offset.items() if key not in _TOO_LONG_FOR_A_LINE} | self._notes()
        return [
            printable(
                " ".join(
                    [
                        self.at.isoformat(timespec="seconds"),
                        *(f"{key}={value}" for key, value in row.items() if value is not None),
                    ]
                )
            )
            for row in [source, *self.silver]
        ]

    def _notes(self) -> dict[str, str]:
        """Return lines about the engines, the proof and scheduled reads, and about what somebody should look at."""
        notes = {"written_by": self.written_by} if self.written_by else {}
        if self.proof is not None:
            notes["proof"] = str(self.proof)
        if self.scheduled:
            notes["scheduled"] = "; ".join(map(str, self.scheduled)) + "; changes between two reads are not seen"
        if self.unknown_operations:
            types = ", ".join(self.unknown_operations)
            notes["unknown_operations"] = (
                f"{types}: stored in bronze, and silver ignores them; see strandline explain versions"
            )
        if self.orphans:
            notes["gold_orphans"] = f"{', '.join(self.orphans)}: no SQL file makes them; strandline gold drop NAME"
        return notes


def status(
    context: typer.Context,
    as_json: AsJson = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Repeat until Ctrl-C. With --json, print one document per line.")
    ] = False,
    every: Annotated[float, typer.Option(min=0.1, help="Interval of --watch, in seconds.")] = 5,
) -> None:
    """Show the position and lag of bronze, and the state of every silver table."""
    stop = stop_on_signal("the look in progress is shown first") if watch else threading.Event()
    ctx = opener(context, briefly=not watch).for_silver_counts()
    if watch:
        show(statuses(lambda: _read_status(ctx, with_errors=as_json), every, stop), out, as_json=as_json)
    elif as_json:
        print_json(_read_status(ctx, with_errors=True).document())
    else:
        out.print(_read_status(ctx).picture())


def statuses(reading: Callable[[], ShownStatus], every: float, stop: threading.Event) -> Iterator[ShownStatus]:
    """Yield one state every *every* seconds until *stop* is set, at least one."""
    while True:
        yield reading()
        if stop.wait(every):
            return


def show(seen: Iterator[ShownStatus], console: Console, *, as_json: bool) -> None:
    """Print each state: a JSON document, a live table on a terminal, or log lines elsewhere."""
    if as_json:
        for status in seen:
            typer.echo(printable_json({"at": status.at, **status.document()}))
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            for status in seen:
                live.update(
                    Group(status.picture(), Text(f"{status.at:%H:%M:%S} UTC; Ctrl-C ends", style="dim")), refresh=True
                )
    else:
        for status in seen:
            typer.echo("\n".join(status.log()))


def _read_status(ctx: LakeContext, *, with_errors: bool = False) -> ShownStatus:
    from strandline.jobs.operations.pipeline_status import pipeline_status

    state = pipeline_status(ctx, with_errors=with_errors)
    return ShownStatus(
        at=state.at,
        offset=asdict(state.offset),
        silver=[
            asdict(row) | {"table": str(row.table), "quarantined": state.quarantined.get(str(row.table), 0)}
            for row in state.tables
        ],
        errors=state.errors,
        pages=None if state.quality_page is None else str(state.quality_page),
        orphans=tuple(map(str, state.gold_orphans)),
        unknown_operations=state.unknown_operations,
        engines={str(table): engine for table, engine in state.engines.items()},
        proof=state.proof,
        scheduled=state.scheduled,
        written_by=engines_text((table.layer, engine) for table, engine in state.engines.items()),
    )
