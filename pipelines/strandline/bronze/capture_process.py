"""The process that captures a source: bronze's column ``writer`` names it, and its newest batch is its last beat."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from strandline.io.tables.table_store import TableStore
from strandline.model.query import Query
from strandline.model.tables import TableName
from strandline.model.timestamps import span, utc

_TIME: Final = "%Y%m%dT%H%M%S.%fZ"
_RECENT_BATCHES: Final = (1, 1_000)
_CLOCK_TOLERANCE: Final = 2.0
"""Seconds by which the start of a process may seem later than a time that the process wrote."""


@dataclass(frozen=True)
class WriterProcess:
    """The process of a writer of bronze, from the writer's id."""

    host: str
    pid: int
    since: datetime
    """UTC."""
    machine: str
    """Hash that names the machine since its start, and the container."""

    @staticmethod
    def of(writer: str) -> WriterProcess | None:
        """Parse the id of a writer. None: it is another id, as of a stream of Spark. Pure."""
        try:
            host, pid, since, machine = writer.split("/")
            return WriterProcess(host, int(pid), datetime.strptime(since, _TIME).replace(tzinfo=UTC), machine)
        except ValueError:
            return None

    @property
    def is_here(self) -> bool:
        """Return True if it is the process that asks."""
        return (self.machine, self.pid) == (_machine(), os.getpid())

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since.isoformat(timespec='seconds')}"


@dataclass(frozen=True)
class CaptureProcess:
    """The process that committed the newest batch of a source, and its last sign of life."""

    writer: str
    """Id of the writer, as in bronze."""
    process: WriterProcess | None
    """None: a stream of Spark."""
    last_beat_at: datetime
    """Capture time of its newest batch, UTC. An idle capture commits a heartbeat."""
    alive: bool
    """True: the process runs on this machine, or its last batch is young. False: it has ended, or is silent."""
    summary: str
    """State, process and last beat, in words."""

    @staticmethod
    def at(
        now: datetime, writer: str, last_beat_at: datetime, silence_seconds: float, runs: Runs | None = None
    ) -> CaptureProcess:
        """Return the process as it is at *now*.

        Args:
            silence_seconds: Time without a batch after which a process of another machine counts as ended.
            runs: Tells if a process runs. None as an answer: another machine knows. Default: ask this machine.
        """
        process = WriterProcess.of(writer)
        is_running = None if process is None else (runs or runs_here)(process)
        silence = max(0.0, (now - last_beat_at).total_seconds())
        alive = silence <= silence_seconds if is_running is None else is_running
        word = "alive" if alive else "silent" if is_running is None else "ended"
        summary = f"{word}: {process or f'writer {writer}'}, last commit {span(silence)} ago"
        return CaptureProcess(writer, process, last_beat_at, alive, summary)

    @property
    def worker(self) -> str:
        """Return the process as one word: ``host:pid``."""
        return self.writer if self.process is None else f"{self.process.host}:{self.process.pid}"


Runs = Callable[[WriterProcess], bool | None]


def writer_id() -> str:
    """Return the id of a new writer: host, process id, time, and a hash that names the machine."""
    host = socket.gethostname().replace("/", "-").replace(":", "-") or "localhost"
    return f"{host}/{os.getpid()}/{datetime.now(UTC).strftime(_TIME)}/{_machine()}"


def newest_writer(tables: TableStore, bronze: TableName, batch: int) -> tuple[str, datetime] | None:
    """Return the writer of the newest batch that a capture committed, and its capture time, UTC.

    I/O: reads the newest batches of *bronze*. None: lately only commands that move the offset have committed.

    Args:
        batch: Number of the newest batch.
    """
    captured = Query(bronze).where(("resume_token", "is not null", None)).where(("op", "<>", "offset"))
    newest = captured.select("writer", "captured_at", "batch", "epoch").order("-epoch", "-batch").limit(1)
    for count in _RECENT_BATCHES:
        for row in tables.query(newest.where(("batch", ">", batch - count))):
            return row["writer"], utc(row["captured_at"])
    return None


def runs_here(process: WriterProcess) -> bool | None:
    """Return True if *process* runs on this machine, False if it has ended. I/O.

    None: it is on another machine, or it is this process, which says nothing about its capture.
    """
    if process.machine != _machine() or process.is_here:
        return None
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it runs as another user
    began = _began_at(process.pid)  # a later process may have the same number
    return began is None or began - process.since.timestamp() <= _CLOCK_TOLERANCE


def _machine() -> str:
    """Return a hash that names this machine since its start, and the container: both have own process ids. I/O."""
    try:
        start = Path("/proc/sys/kernel/random/boot_id").read_text("ascii") + str(Path("/proc/self/ns/pid").readlink())
    except OSError:  # not Linux
        start = ""
    return hashlib.sha256(f"{socket.gethostname()} {start}".encode()).hexdigest()[:12]


def _began_at(pid: int) -> float | None:
    """Return the Unix time at which a process began. None: unknown, as elsewhere than on Linux. I/O."""
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[19])
        lines = Path("/proc/stat").read_text("ascii").splitlines()
    except OSError:
        return None
    boot = next(int(line.split()[1]) for line in lines if line.startswith("btime"))
    return boot + ticks / os.sysconf("SC_CLK_TCK")
