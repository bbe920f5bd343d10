"""The first commands of a new user as a moving picture: they run on a MongoDB of their own, without PySpark."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from pymongo import MongoClient

from strandline.source.mongod import EmbeddedMongod

_TITLE: Final = "The first commands: init lists the collections, run copies them, sql reads a table"
_COMMANDS: Final = (
    "export STRANDLINE_SOURCE__URI='mongodb://…'",
    "strandline init shop --database shop",
    "cd shop",
    "strandline run --once",
    "strandline sql 'select state, count(*) as n, sum(total) as total from silver.orderLines group by state'",
)
_COLLECTIONS: Final = {"orderLines": 94_000, "customers": 5_000, "order-lines.v2": 1_000}
_STATES: Final = ("open", "paid", "sent")
_WITHOUT_PYSPARK: Final = "import sys; sys.modules['pyspark'] = None; from strandline.cli import main; main()"
_WIDTH, _LINE_HEIGHT = 106, 15
_TYPING_SECONDS, _READING_SECONDS = 1.2, 8.0


@dataclass(frozen=True)
class TypedCommand:
    """A command as it is typed, what it printed, and the seconds until it ended."""

    text: str
    printed: tuple[str, ...]
    seconds: float


def first_commands() -> list[TypedCommand]:
    """Run the commands. I/O: starts a mongod, and removes it with the lake."""
    with EmbeddedMongod() as server, tempfile.TemporaryDirectory() as folder:
        with MongoClient[dict[str, Any]](server.uri) as client:
            for collection, count in _COLLECTIONS.items():
                client["shop"][collection].insert_many(
                    {"_id": number, "total": number % 900 / 4, "state": _STATES[number % 3]} for number in range(count)
                )
        place, commands = Path(folder), []
        for text in _COMMANDS:
            program, *arguments = shlex.split(text)
            if program == "cd":
                place /= arguments[0]
            began = time.monotonic()
            printed = _printed(arguments, place, server.uri) if program == "strandline" else ()
            commands.append(TypedCommand(text, printed, time.monotonic() - began))
        return commands


def _printed(arguments: Sequence[str], place: Path, uri: str) -> tuple[str, ...]:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_PYSPARK, *arguments],
        cwd=place,
        env=os.environ | {"STRANDLINE_SOURCE__URI": uri, "COLUMNS": str(_WIDTH)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    # The path of this checkout is in the command that installs Spark's packages.
    return tuple(line for line in done.stdout.splitlines() if not line.startswith("left out"))


def moving(commands: Sequence[TypedCommand]) -> str:
    """Return an SVG in which the lines of a terminal appear as fast as they did, again and again. Pure."""
    lines: list[tuple[str, str, float]] = []
    for command in commands:
        lines.append(("typed", f"$ {command.text}", _TYPING_SECONDS))
        lines += [("", text, 0.0 if number else command.seconds) for number, text in enumerate(command.printed)]
    times = list(accumulate(pause for _, _, pause in lines))
    whole = times[-1] + _READING_SECONDS
    frames = "".join(_frame(number, 100 * at / whole) for number, at in enumerate(times))
    rows = "".join(
        f'<text class="l{number} {kind}" x="14" y="{28 + _LINE_HEIGHT * number}" xml:space="preserve">'
        f"{escape(text)}</text>\n"
        for number, (kind, text, _) in enumerate(lines)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH * 8} {30 + _LINE_HEIGHT * len(lines)}"'
        f' role="img" aria-label="{_TITLE}"><title>{_TITLE}</title>\n'
        "<style>text{font:13px ui-monospace,Menlo,Consolas,monospace;fill:#d6dae1;"
        f"animation:{whole:.1f}s step-end infinite}}.typed{{fill:#7fd1ae;font-weight:600}}{frames}"
        "@media (prefers-reduced-motion:reduce){text{animation:none}}</style>\n"
        f'<rect width="100%" height="100%" rx="8" fill="#1b1f27"/>\n{rows}</svg>\n'
    )


def _frame(number: int, percent: float) -> str:
    """Return the style of a line that is hidden until *percent* of the time have passed."""
    frame = f"0%{{opacity:0}}{percent:.2f}%,100%{{opacity:1}}"
    return f"@keyframes l{number}{{{frame}}}.l{number}{{animation-name:l{number}}}"
