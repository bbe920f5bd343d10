"""A lake whose process ends at a chosen commit."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from pipelines.io.tables import Tables


class Crash(BaseException):  # no retry may catch it
    """The process ends here."""


@dataclass(frozen=True)
class CrashingTables(Tables):
    """Real tables that end the run before or after one of their commits, as a power cut would.

    *countdown*: ``left``, how many commits there are up to that one; ``after``, 1 where that one still happens. Several threads commit.
    *ended*: what that commit was.
    """

    countdown: dict[str, int] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def _commit(self, call: Any, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            left = self.countdown["left"] = self.countdown.get("left", 10**9) - 1
        if left == 0:
            self.ended.append(f"{call.__name__.replace('_', ' ')} to {args[0]}")
        if left < 0 or (left == 0 and self.countdown["after"] == 0):
            raise Crash
        result = call(*args, **kwargs)
        if left == 0:
            raise Crash
        return result

    def append(self, *args: Any, **kwargs: Any) -> None:
        self._commit(super().append, *args, **kwargs)

    def set_properties(self, *args: Any, **kwargs: Any) -> None:
        self._commit(super().set_properties, *args, **kwargs)

    def replace(self, *args: Any, **kwargs: Any) -> None:
        self._commit(super().replace, *args, **kwargs)
