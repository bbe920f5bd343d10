"""Whole commands, as a user types them: from their start to their exit, with CPU time and memory of all processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil

from bench.limits import Client, insert, now

_SAMPLE_SECONDS = 0.05
_MEMORY_EVERY = 3
"""Samples between two readings of the memory: the kernel walks all pages for one."""


@dataclass(frozen=True)
class CommandCost:
    """Cost of one command. *memory*: peak of all processes in bytes; memory that processes share counts once (PSS)."""

    name: str
    seconds: float
    cpu_seconds: float
    memory: int


def compare(client: Client, uri: str, folder: Path, *, documents: int, events: int, seed: int) -> list[CommandCost]:
    """Measure ``capture --once``: a snapshot, then with nothing new, then a backlog of the change stream."""
    insert(client, "whole", documents, seed=seed)
    lake = {
        "STRANDLINE_SOURCE__URI": uri,
        "STRANDLINE_SOURCE__NAME": "bench",
        "STRANDLINE_CAPTURE__SCOPE": "database",
    }
    first = lake | {"STRANDLINE_CAPTURE__TARGET": "whole", "STRANDLINE_LAKE__ROOT": str(folder / "whole")}
    measured = [
        measure(f"capture --once, snapshot of {documents:,}", ["capture", "--once"], first),
        measure("capture --once, nothing new", ["capture", "--once"], first),
        measure("offsets show", ["offsets", "show"], first),
        measure("--help", ["--help"], first),
    ]
    start = datetime.fromtimestamp(now(client).time, UTC).isoformat()
    insert(client, "backlog", events, seed=seed)
    second = lake | {
        "STRANDLINE_CAPTURE__TARGET": "backlog",
        "STRANDLINE_CAPTURE__SNAPSHOT_MODE": "no_data",
        "STRANDLINE_CAPTURE__START_AT": start,
        "STRANDLINE_LAKE__ROOT": str(folder / "backlog"),
    }
    return [*measured, measure(f"capture --once, backlog of {events:,}", ["capture", "--once"], second)]


def measure(name: str, arguments: Sequence[str], environment: Mapping[str, str]) -> CommandCost:
    """Run ``strandline`` once, and wait for it. Raises RuntimeError if it fails."""
    command = [sys.executable, "-m", "pipelines.cli", *arguments]
    begun = time.perf_counter()
    process = subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
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
    seconds = time.perf_counter() - begun
    if process.returncode != 0:
        assert process.stdout is not None
        raise RuntimeError(f"{name}: exit code {process.returncode}\n{process.stdout.read()}")
    return CommandCost(name, seconds, sum(cpu.values()), peak)
