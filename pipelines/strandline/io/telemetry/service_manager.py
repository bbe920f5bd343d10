"""Messages to the service manager (systemd) that started this process: sd_notify(3)."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping
from typing import Final

from strandline.io.telemetry.live_state import CaptureState

_log = logging.getLogger("strandline.service")
_STATUS_SECONDS: Final = 10.0


class ServiceManager:
    """Tells systemd when the capture is ready, that its loop runs, how it is, and when it ends.

    A message that is not accepted is logged once; the capture goes on.

    Args:
        address: Path of the socket, or its abstract name behind ``@``.
        watchdog_seconds: Time after which systemd ends a process without a message. None: it has no watchdog.
    """

    def __init__(self, address: str, watchdog_seconds: float | None = None) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._watchdog_seconds = watchdog_seconds
        self._is_ready = self._has_failed = False
        self._alive_at = self._status_at = float("-inf")
        self._status = ""

    @staticmethod
    def from_environment(environ: Mapping[str, str] = os.environ) -> ServiceManager | None:
        """Return the service manager that ``NOTIFY_SOCKET`` names. None: there is none, or it is no Unix socket."""
        address = environ.get("NOTIFY_SOCKET", "")
        if not address.startswith(("/", "@")):
            return None
        microseconds, is_for_this = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", str(os.getpid()))
        is_watched = microseconds.isdecimal() and int(microseconds) > 0 and is_for_this == str(os.getpid())
        return ServiceManager(address, int(microseconds) / 1_000_000 if is_watched else None)

    def beat(self, capture: CaptureState) -> None:
        """Send what is due: ``READY=1`` once the stream is open, ``WATCHDOG=1``, and a changed ``STATUS=``.

        Called in the loop's thread, so that a loop that hangs sends nothing.
        """
        now, lines, status = time.monotonic(), list[str](), self._status
        is_ready = self._is_ready or capture.connected
        if is_ready and not self._is_ready:
            lines.append("READY=1")
        if self._watchdog_seconds is not None and now - self._alive_at >= self._watchdog_seconds / 2:
            lines.append("WATCHDOG=1")
        if lines or now - self._status_at >= _STATUS_SECONDS:
            status, self._status_at = capture.summary().replace("\n", " "), now
            lines += [f"STATUS={status}"] if status != self._status else []
        if lines and self._send(lines):
            self._is_ready, self._status = is_ready, status
            self._alive_at = now if "WATCHDOG=1" in lines else self._alive_at

    def stopping(self) -> None:
        """Send ``STOPPING=1``."""
        self._send(["STOPPING=1", "STATUS=ends after the batch in progress"])

    def _send(self, lines: list[str]) -> bool:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)  # a manager that reads nothing must not hold the capture
                sender.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            if not self._has_failed:
                _log.warning("the service manager does not accept messages: %s", error.strerror or error)
            self._has_failed = True
            return False
        self._has_failed = False
        return True
