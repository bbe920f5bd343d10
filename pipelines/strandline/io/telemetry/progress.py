"""Progress of this process: the steps that take time, and how far each is. A command shows them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")


@dataclass(eq=False)
class Step:
    """A step that is at work. Safe for several threads.

    Args:
        name: Name of the step, such as ``silver``.
        unit: Name of what is counted, in the plural. Empty: nothing is counted.
        total: Number of units at the end. None: it is not known.
    """

    name: str
    unit: str = ""
    total: int | None = None
    count: int = 0
    earlier: int = 0
    """Units that were complete before the step began. They are in *count*, and not in the rate."""
    item: str = ""
    """Name of what was begun last."""
    began_at: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def advance(self, units: int = 1) -> None:
        """Count *units* as complete."""
        with self._lock:
            self.count += units

    def counting(self, work: Callable[[T], R], name: Callable[[T], object] = str) -> Callable[[T], R]:
        """Return *work* that also tells on which item it is, and counts each item that is complete."""

        def tracked(item: T) -> R:
            self.item = str(name(item))
            result = work(item)
            self.advance()
            return result

        return tracked

    def over(self, items: Iterable[T], name: Callable[[T], object] = str) -> Iterator[T]:
        """Yield *items*. Tell which one is being worked on, and count each that is complete."""
        for item in items:
            self.item = str(name(item))
            yield item
            self.advance()

    def seconds(self) -> float:
        """Return the time since the step began."""
        return time.monotonic() - self.began_at


class Display(Protocol):
    """Shows steps. Each method is called by the thread of the step."""

    def begin(self, step: Step) -> None:
        """Show *step* from now on."""

    def end(self, step: Step) -> None:
        """Show *step* no more."""


class Progress:
    """The steps of this process. Without a display they cost nothing."""

    def __init__(self) -> None:
        self.display: Display | None = None

    @contextmanager
    def step(self, name: str, unit: str = "", total: int | None = None) -> Iterator[Step]:
        """Show a step while the block runs. A step without items to work on is not shown."""
        step, display = Step(name, unit, total), self.display
        if display is None or total == 0:
            yield step
            return
        display.begin(step)
        try:
            yield step
        finally:
            display.end(step)


PROGRESS: Final = Progress()
"""Progress of this process, as the log is the log of this process. The command line sets its display."""
