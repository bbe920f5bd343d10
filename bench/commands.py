"""Whole commands, as a user types them: from their start to their exit, with CPU time and memory of all processes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil

from bench.limits import Client, drain_limit, find_limit, insert, now
from bench.measure import timed

_SAMPLE_SECONDS = 0.05
_MEMORY_EVERY = 3
"""Samples between two readings of the memory: the kernel walks all pages for one."""


@dataclass(frozen=True)
class CommandCost:
    """Cost of one command. *memory*: peak of all processes in bytes; memory that processes share counts once (PSS).

    *limit*: seconds in which one raw cursor of the driver reads the same documents or events. None: nothing is read.
    """

    name: str
    seconds: float
    cpu_seconds: float
    memory: int
    limit: float | None = None


def compare(client: Client, uri: str, folder: Path, *, documents: int, events: int, seed: int) -> list[CommandCost]:
    """Measure ``capture --once``: a snapshot, then with nothing new, then a backlog of the change stream.

    Also the first ``silver`` of that snapshot, and ``run --once`` of the same documents.
    """
    insert(client, "whole", documents, seed=seed)
    found = timed("", lambda: find_limit(client, "whole")).seconds
    lake = {
        "STRANDLINE_SOURCE__URI": uri,
        "STRANDLINE_SOURCE__NAME": "bench",
        "STRANDLINE_CAPTURE__SCOPE": "database",
    }
    first = lake | {"STRANDLINE_CAPTURE__TARGET": "whole", "STRANDLINE_LAKE__ROOT": str(folder / "whole")}
    whole = first | {"STRANDLINE_LAKE__ROOT": str(folder / "run")}
    measured = [
        measure(f"capture --once, snapshot of {documents:,} documents", ["capture", "--once"], first, limit=found),
        measure("capture --once, nothing new", ["capture", "--once"], first),
        measure(f"silver, first run over {documents:,} documents", ["silver"], first),
        measure(f"run --once of {documents:,} documents", ["run", "--once"], whole, limit=found),
        measure("stop", ["stop"], first),
        measure("offsets show", ["offsets", "show"], first),
        measure("--help", ["--help"], first),
    ]
    begun = now(client)
    insert(client, "backlog", events, seed=seed)
    drained = timed("", lambda: drain_limit(client, "backlog", begun, events)).seconds
    second = lake | {
        "STRANDLINE_CAPTURE__TARGET": "backlog",
        "STRANDLINE_CAPTURE__SNAPSHOT_MODE": "no_data",
        "STRANDLINE_CAPTURE__START_AT": datetime.fromtimestamp(begun.time, UTC).isoformat(),
        "STRANDLINE_LAKE__ROOT": str(folder / "backlog"),
    }
    name = f"capture --once, backlog of {events:,} events"
    return [*measured, measure(name, ["capture", "--once"], second, limit=drained)]


def measure(
    name: str, arguments: Sequence[str], environment: Mapping[str, str], *, limit: float | None = None
) -> CommandCost:
    """Run ``strandline`` once, and wait for it. Raises RuntimeError if it fails."""
    return measure_process(name, [sys.executable, "-m", "strandline.cli", *arguments], environment, limit=limit)


def measure_process(
    name: str, command: Sequence[str], environment: Mapping[str, str], *, limit: float | None = None
) -> CommandCost:
    """Run a command once, and wait for it. Raises RuntimeError if it fails."""
    with tempfile.TemporaryFile("w+") as shown:
        begun = time.perf_counter()
        process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=shown, stderr=subprocess.STDOUT)
        cpu, peak = _watched(process)
        seconds = time.perf_counter() - begun
        if process.returncode != 0:
            shown.seek(0)
            raise RuntimeError(f"{name}: exit code {process.returncode}\n{shown.read()}")
    return CommandCost(name, seconds, cpu, peak, limit)


def _watched(process: subprocess.Popen[bytes]) -> tuple[float, int]:
    """Wait for *process*. Return CPU seconds and peak memory of it and its child processes."""
    main, cpu, peak, sample = psutil.Process(process.pid), dict[int, float](), 0, 0
    while process.poll() is None:
        memory = 0
        with suppress(psutil.Error):
            for each in [main, *main.children(recursive=True)]:
                with suppress(psutil.Error):
                    times = each.cpu_times()
                    cpu[each.pid] = times.user + times.system
                    memory += each.memory_full_info().pss if sample % _MEMORY_EVERY == 0 else 0
        peak, sample = max(peak, memory), sample + 1
        time.sleep(_SAMPLE_SECONDS)
    return sum(cpu.values()), peak
