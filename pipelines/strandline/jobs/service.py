"""Silver and gold of a running service: each is run when it is due, and retried with back-off when it failed.

Each has a thread of its own, so that a new row need not wait for gold until it is in silver.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from strandline.errors import QualityGateClosed, StrandlineError, one_line
from strandline.gold.results import GoldResult
from strandline.io.telemetry.live_state import CaptureState
from strandline.io.telemetry.metrics import (
    LAYER_FAILING,
    LAYER_FAILURES,
    SOURCE_TO_GOLD,
    SOURCE_TO_SILVER,
    count_failures,
)
from strandline.source.retry_policy import RetryPolicy

_log = logging.getLogger("strandline.run")


@dataclass
class Layer:
    """State of one layer: ``silver`` or ``gold``.

    Args:
        policy: Delays between attempts. The number of attempts has no limit: capture goes on meanwhile.
        clock: Seconds that never go back.
        state: Observer that shows a failure of the layer.
    """

    name: str
    policy: RetryPolicy
    clock: Callable[[], float]
    state: CaptureState
    failure: Exception | None = field(default=None, init=False)
    """The failure of the last attempt. None: it succeeded, or there was none."""
    _failures: int = field(default=0, init=False)
    _next_at: float = field(default=-math.inf, init=False)

    @property
    def is_due(self) -> bool:
        """Return True if the wait after a failure is over, or nothing failed."""
        return self.clock() >= self._next_at

    def succeeded(self) -> None:
        if self._failures:
            _log.info("%s works again", self.name)
        self.forget_failures()

    def forget_failures(self) -> None:
        """Make the layer due at once, and show no failure of it any more."""
        self._failures, self._next_at, self.failure = 0, -math.inf, None
        LAYER_FAILING.labels(self.name).set(0)
        self.state.failing.pop(self.name, None)

    def failed(self, failure: Exception) -> None:
        """Count a failure, log one line, and set the time of the next attempt."""
        self._failures, self.failure = self._failures + 1, failure
        why = one_line(failure)
        delay = self.policy.delay_seconds(self._failures)
        self._next_at = self.clock() + delay
        count_failures(1, logged=1, retries=1)
        LAYER_FAILURES.labels(self.name).inc()
        LAYER_FAILING.labels(self.name).set(self._failures)
        self.state.failing[self.name] = why
        _log.error(
            "%s failed: %s; capture goes on, attempt %d follows in %.0f s", self.name, why, self._failures + 1, delay
        )


@dataclass
class Transformations:
    """Silver and gold. `step_silver` and `step_gold` may run in two threads.

    Args:
        run_silver: Merges what is new. Returns True if gold may be out of date.
        run_gold: Runs the quality gate and builds gold.
        policy, clock, state: As of `Layer`.
        max_lag_seconds: Lag of silver that is accepted so that several batches share a run. 0: merge at once.
    """

    run_silver: Callable[[], bool]
    run_gold: Callable[[], list[GoldResult]]
    policy: RetryPolicy
    state: CaptureState
    clock: Callable[[], float] = time.monotonic
    max_lag_seconds: float = 0.0
    silver: Layer = field(init=False)
    gold: Layer = field(init=False)
    closed: QualityGateClosed | None = field(default=None, init=False)
    """The closed quality gate. None: it is open."""
    _gold_is_stale: bool = field(default=False, init=False)
    _merges_at: float = field(default=-math.inf, init=False)
    """Earliest time of the next silver run."""

    def __post_init__(self) -> None:
        self.silver, self.gold = (Layer(name, self.policy, self.clock, self.state) for name in ("silver", "gold"))

    def step_silver(self) -> None:
        """Run silver if it is due.

        Raises:
            Py4JNetworkError: The JVM is gone. Only a new process helps.
        """
        if not self.silver.is_due or self.clock() < self._merges_at:
            return
        began, started = time.time(), self.clock()
        try:
            changed = self.run_silver()
        except Exception as error:  # noqa: BLE001  # why: a failed table must not end capture
            self._note(self.silver, error)
            self._gold_is_stale = True  # the other tables have been merged
            return
        self.silver.succeeded()
        if changed:  # a change waits for this time at most, then for a run that takes as long as this one
            self._merges_at = started + max(0.0, self.max_lag_seconds - (self.clock() - started))
        for age in self.state.merged(began):
            SOURCE_TO_SILVER.observe(age)
        if changed:
            self._gold_is_stale = True

    def step_gold(self) -> None:
        """Run gold if it is due and may be out of date, or failed before.

        Raises:
            Py4JNetworkError: The JVM is gone. Only a new process helps.
        """
        if not self._gold_is_stale or not self.gold.is_due:
            return
        self._gold_is_stale = False  # before gold reads silver: what silver merges meanwhile makes it stale again
        batches = len(self.state.unbuilt)
        try:
            results = self.run_gold()
        except QualityGateClosed as closed:
            self.closed = closed  # until silver changes
            if closed.is_broken:
                self._gold_is_stale = True
                self.gold.failed(closed)
                return
            _log.error("gold is not refreshed: %s", closed)
            self.gold.forget_failures()  # gold is not built now: the gate is the reason, and not the failure before
            return
        except Exception as error:  # noqa: BLE001  # why: a failed node must not end capture
            self._gold_is_stale = True
            self._note(self.gold, error)
            return
        self.closed = None
        failed = [f"gold.{result.name}: {result.reason}" for result in results if result.status == "failed"]
        if failed:
            self._gold_is_stale = True
            self.gold.failed(StrandlineError("; ".join(failed), next_step="strandline gold"))
            return
        self.gold.succeeded()
        for age in self.state.built(batches):
            SOURCE_TO_GOLD.observe(age)

    def _note(self, layer: Layer, error: Exception) -> None:
        py4j = sys.modules.get("py4j.protocol")  # a process without it has no JVM
        if py4j is not None and isinstance(error, py4j.Py4JNetworkError):
            raise error
        layer.failed(error)
