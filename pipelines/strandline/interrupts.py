"""Ctrl-C and SIGTERM of the command line: one line at once, and no stack trace at any moment.

A command ends at once, as after a crash, from which every command recovers; or, if it asked for that, after its work in
progress. No KeyboardInterrupt is raised: libraries print it, and drop it. The command line imports this module before
all others, so it imports nothing that Python has not imported for its own start.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # why: the module signal itself takes milliseconds to import
import _thread
import os
import sys

TYPE_CHECKING = False  # the module typing takes as long as all of Python's start
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

EXIT_CODE = 130
"""Exit code after Ctrl-C: 128 and the signal's number, as of a shell. After SIGTERM it is 0: the run had to end."""
_SHOW_CURSOR = "\x1b[?25h"


class Interrupts:
    """Handler of the signals. Python's own table of handlers holds it."""

    def __init__(
        self,
        stop: Callable[[], None] | None = None,
        what: str = "",
        has_begun: Callable[[], bool] = lambda: True,
    ) -> None:
        """Create a handler for one command.

        Args:
            stop: Lets the command end by itself after the first signal. Called in a thread of its own: the main thread
                may hold a lock that it needs. None: Ctrl-C ends the command at once, and SIGTERM is not handled.
            what: Description of the work that is finished first.
            has_begun: Returns False while there is no work to finish: then the command ends at once.
        """
        self._stop, self._what, self._has_begun = stop, what, has_begun
        self.received: int | None = None
        """The first signal. None: no signal came."""

    @staticmethod
    def installed() -> Interrupts | None:
        """Return the handler of this process. None: it has none."""
        handler = _signal.getsignal(_signal.SIGINT)
        return handler if isinstance(handler, Interrupts) else None

    def install(self) -> None:
        """Handle the signals from now on. No effect outside the main thread, where a platform may run a command."""
        try:
            _signal.signal(_signal.SIGINT, self)
            if self._stop is not None:
                _signal.signal(_signal.SIGTERM, self)
        except ValueError:
            pass

    def __call__(self, number: int, _: FrameType | None) -> None:
        is_first, self.received = self.received is None, self.received or number
        if is_first and self._stop is not None and self._has_begun():
            _say(f"ending: {self._what}; Ctrl-C again ends at once, and the next run repeats what is lost")
            _thread.start_new_thread(self._stop, ())
        elif is_first or number == _signal.SIGINT:
            _say("interrupted: what is committed stays, and the same command does the rest")
            os._exit(EXIT_CODE if number == _signal.SIGINT else 0)


def _say(text: str) -> None:
    try:
        cursor = _SHOW_CURSOR if os.isatty(2) else ""
        os.write(2, f"{cursor}strandline: {text}\n".encode())
    except OSError:  # nobody reads it
        pass


if sys.argv[0].rpartition("/")[2] == "strandline" and "DATABRICKS_RUNTIME_VERSION" not in os.environ:
    Interrupts().install()
