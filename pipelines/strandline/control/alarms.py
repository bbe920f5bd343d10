"""Alarms of a running process: one message when a state begins, one when it ends. Never in the way of capture."""

from __future__ import annotations

import logging
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal

from strandline.control.alarm_channels import AlarmChannel, Message
from strandline.io.telemetry.live_state import CaptureState

_log = logging.getLogger("strandline.alarms")
_MOST_WAITING: Final = 1_000
_MOST_ATTEMPTS: Final = 10
_COMMANDS: Final = {
    "lag": "strandline status",
    "lake": "check the disk or the store of the lake",
    "source": "strandline doctor",
    "snapshot": "strandline snapshot list",
    "silver": "strandline silver",
    "gold": "strandline gold",
    "failure": "the log of the process",
}


@dataclass(frozen=True)
class AlarmLimits:
    """Limits of the states, in seconds. None: the state is not watched."""

    lag_seconds: float | None = 300
    disconnected_seconds: float | None = 60
    snapshot_seconds: float | None = 1800


def states_of(capture: CaptureState, limits: AlarmLimits, now: float) -> dict[str, str]:
    """Return the states that hold at *now* (Unix time), each with its reason. Pure.

    A failing lake, silver or gold is a state at once: it was retried already.
    """
    states = dict(capture.failing)
    behind = capture.behind_seconds
    if limits.lag_seconds is not None and behind is not None and behind > limits.lag_seconds:
        states["lag"] = f"bronze is {behind:.0f} s behind the source, more than {limits.lag_seconds:.0f} s"
    since = capture.disconnected_since
    if limits.disconnected_seconds is not None and since is not None and now - since > limits.disconnected_seconds:
        states["source"] = f"the change stream has been down for {now - since:.0f} s"
    snapshot = None if capture.snapshot is None else capture.snapshot()
    if snapshot is not None and snapshot.state == "running" and limits.snapshot_seconds is not None:
        moments = (snapshot.last_commit_at, snapshot.held_at)
        idle = min([snapshot.seconds, *(now - moment for moment in moments if moment is not None)])
        if idle > limits.snapshot_seconds:
            states["snapshot"] = (
                f"no chunk was committed for {idle:.0f} s ({snapshot.chunks_done} of {snapshot.chunks})"
            )
    return states


@dataclass
class Alarms:
    """Watches the state of the process and sends messages, in threads of its own.

    Each channel has its own thread and queue: a channel that does not answer delays no other. A message is repeated
    with growing waits, up to ten times; then a line in the log says that it was not delivered.

    Args:
        watch: Returns the states that hold now, with their reasons.
        interval_seconds: Time between two looks.
        delay_seconds: Wait after the first failed attempt. It doubles.
        wanted: Returns the state that an operator wants.
    """

    source: str
    channels: Sequence[AlarmChannel]
    watch: Callable[[], Mapping[str, str]]
    interval_seconds: float = 10.0
    delay_seconds: float = 1.0
    wanted: Callable[[], str] = lambda: "running"
    _open: dict[str, str] = field(default_factory=dict, init=False)
    _queues: list[queue.Queue[Message]] = field(default_factory=list, init=False)
    _stop: threading.Event = field(default_factory=threading.Event, init=False)
    _watcher: threading.Thread | None = field(default=None, init=False)

    def start(self) -> Alarms:
        """Start the threads. No thread without a channel."""
        for channel in self.channels:
            waiting: queue.Queue[Message] = queue.Queue(_MOST_WAITING)
            self._queues.append(waiting)
            threading.Thread(
                target=self._deliver, args=(channel, waiting), name="strandline-alarm", daemon=True
            ).start()
        if self.channels:
            self._watcher = threading.Thread(target=self._watch, name="strandline-alarms", daemon=True)
            self._watcher.start()
        return self

    def close(self, failure: str | None = None, seconds: float = 3.0) -> None:
        """Stop watching. Wait at most *seconds* for messages that are not delivered.

        Args:
            failure: Failure that ends the process: one more message. None: it ends as it should.
        """
        self._stop.set()
        if self._watcher is not None:
            self._watcher.join(seconds)
        if failure is not None:
            self._put("failure", "begins", failure)
        deadline = time.monotonic() + seconds
        while any(waiting.unfinished_tasks for waiting in self._queues) and time.monotonic() < deadline:
            time.sleep(0.05)

    def _watch(self) -> None:
        while not self._stop.wait(self.interval_seconds):
            try:
                self._look()
            except Exception as error:  # noqa: BLE001  # why: a state that cannot be told now is told at the next look
                _log.warning("the state cannot be told: %s", type(error).__name__)

    def _look(self) -> None:
        now = self.watch()
        for state in [state for state in self._open if state not in now]:
            self._put(state, "ends", self._open.pop(state))
        for state, reason in now.items():
            if state not in self._open:
                self._put(state, "begins", reason)
                self._open[state] = reason

    def _put(self, state: str, phase: Literal["begins", "ends"], reason: str) -> None:
        at = datetime.now(UTC).isoformat(timespec="seconds")
        command, process = _COMMANDS.get(state, "strandline status"), f"{socket.gethostname()}:{os.getpid()}"
        message = Message(self.source, state, phase, at, reason, command, self.wanted(), process)
        for waiting in self._queues:
            try:
                waiting.put_nowait(message)
            except queue.Full:
                _log.error("an alarm is not delivered, %d wait: %s", _MOST_WAITING, message.line)

    def _deliver(self, channel: AlarmChannel, waiting: queue.Queue[Message]) -> None:
        while True:
            message = waiting.get()
            try:
                self._send(channel, message)
            finally:
                waiting.task_done()

    def _send(self, channel: AlarmChannel, message: Message) -> None:
        name = type(channel).__name__.lower()
        for attempt in range(_MOST_ATTEMPTS):
            try:
                channel.send(message)
                return
            except Exception as error:  # noqa: BLE001  # why: whatever a channel raises must not end its thread
                _log.warning("an alarm was not accepted by the %s: %s", name, type(error).__name__)
            time.sleep(min(self.delay_seconds * 2.0**attempt, 60.0))
        _log.error("an alarm is not delivered by the %s: %s", name, message.line)
