"""Ctrl-C and SIGTERM of the command line: one line at once, and no stack trace at any moment.

Python runs a signal's handler only between two instructions of its main thread, which may wait inside a library. So a
thread of its own reads the signals. A command ends at once, as after a crash, from which every command recovers; or, if
it asked for that, after its work in progress. The command line imports this module before all others.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # why: the module signal itself takes milliseconds to import
import os
import sys

_PROGRAMS = ("strandline", "__main__.py")
_IS_PROGRAM = sys.argv[0].rpartition("/")[2] in _PROGRAMS and "DATABRICKS_RUNTIME_VERSION" not in os.environ
EXIT_CODE = 130
"""Exit code after Ctrl-C: 128 and the signal's number, as of a shell."""

if _IS_PROGRAM:  # until the imports below are done

    def _end(*_: object) -> None:
        os.write(2, b"strandline: interrupted before the command began\n")
        os._exit(EXIT_CODE)

    _signal.signal(_signal.SIGINT, _end)

import signal  # noqa: E402  # why: as above
import threading  # noqa: E402  # why: as above

TYPE_CHECKING = False  # the module typing takes a third of the time until Ctrl-C is handled
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_SHOW_CURSOR = "\x1b[?25h"


class Interrupts:
    """Handler of the signals. Python's own table of handlers holds it."""

    def __init__(self) -> None:
        self.received: int | None = None
        """The first signal. None: no signal came."""
        self._stop: Callable[[], None] | None = None
        self._what = ""
        self._has_begun: Callable[[], bool] = lambda: False
        self._ends, written = os.pipe()
        os.set_blocking(written, False)
        signal.set_wakeup_fd(written, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, name="strandline-signals", daemon=True).start()

    @staticmethod
    def installed() -> Interrupts | None:
        """Return the handler of this process. None: it has none."""
        found = signal.getsignal(signal.SIGINT)
        return found if isinstance(found, Interrupts) else None

    @staticmethod
    def install() -> None:
        """Handle Ctrl-C from now on. Idempotent; for the main thread only."""
        if Interrupts.installed() is None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, Interrupts())

    def finish_first(self, stop: Callable[[], None], what: str, has_begun: Callable[[], bool]) -> None:
        """Let the command end by itself after Ctrl-C or SIGTERM. A second Ctrl-C ends it at once.

        Args:
            stop: Called once, in the thread that reads the signals.
            what: Description of the work that is finished first.
            has_begun: Returns False while there is no work to finish: then the command ends at once.
        """
        self._stop, self._what, self._has_begun = stop, what, has_begun
        signal.signal(signal.SIGTERM, self)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Do nothing in the main thread."""

    def _watch(self) -> None:
        while numbers := os.read(self._ends, 1):
            self._received(numbers[0])

    def _received(self, number: int) -> None:
        if number not in (signal.SIGINT, signal.SIGTERM):
            return
        first, self.received = self.received is None, self.received or number
        if first and self._stop is not None:
            self._stop()
            if self._has_begun():
                _say(f"ending: {self._what}; Ctrl-C again ends at once, and the next run repeats what is lost")
                return
        if first:
            _say("interrupted: what is committed stays, and the same command does the rest")
        if first or number == signal.SIGINT:
            os._exit(EXIT_CODE if number == signal.SIGINT else 0)


def _say(text: str) -> None:
    cursor = _SHOW_CURSOR if os.isatty(2) else ""
    os.write(2, f"{cursor}strandline: {text}\n".encode())


if _IS_PROGRAM:
    Interrupts.install()
