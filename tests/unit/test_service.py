"""Silver and gold of a service: what fails is retried with back-off, told, and never ends the service."""

from __future__ import annotations

import pytest
from prometheus_client import REGISTRY
from py4j.protocol import Py4JNetworkError

from strandline.errors import ContractError, QualityGateClosed
from strandline.gold.results import GoldResult
from strandline.io.telemetry.live_state import CaptureState
from strandline.jobs.service import Transformations
from strandline.source.retry_policy import RetryPolicy

POLICY = RetryPolicy(initial_delay_ms=1_000, max_delay_ms=1_000)
BUILT, FAILED = GoldResult("a", "table", "built", 1), GoldResult("a", "table", "failed", reason="no such column")


class Work:
    """Silver and gold with the given results or errors of their runs, and a clock that the test moves."""

    def __init__(
        self,
        silver: list[bool | Exception],
        gold: list[list[GoldResult] | Exception],
        *,
        max_lag_seconds: float = 0,
        silver_seconds: float = 0,
    ) -> None:
        self.silver, self.gold, self.now, self._silver_seconds = silver, gold, 0.0, silver_seconds
        self.state = CaptureState()
        self.work = Transformations(
            self._silver, self._gold, POLICY, self.state, clock=lambda: self.now, max_lag_seconds=max_lag_seconds
        )

    def step(self) -> None:
        self.work.step_silver()
        self.work.step_gold()

    def _silver(self) -> bool:
        found = self.silver.pop(0) if self.silver else False
        self.now += self._silver_seconds if found else 0
        if isinstance(found, Exception):
            raise found
        return found

    def _gold(self) -> list[GoldResult]:
        found = self.gold.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


def failing(layer: str) -> float | None:
    return REGISTRY.get_sample_value("strandline_layer_failing", {"layer": layer})


def test_a_failed_silver_is_retried_after_a_wait_and_told_until_it_works() -> None:
    given = Work([ContractError("a column is missing"), True], [[BUILT], [BUILT]])
    given.step()
    given.step()
    assert (len(given.silver), failing("silver")) == (1, 1), "the second step came before its time"
    assert len(given.gold) == 1, "the other tables have been merged"
    assert given.state.failing == {"silver": "a column is missing"}
    assert isinstance(given.work.silver.failure, ContractError)
    given.now += 1
    given.step()
    assert (given.silver, given.gold, failing("silver"), given.state.failing) == ([], [], 0, {})
    assert given.work.silver.failure is None


def test_changes_share_a_silver_run_as_far_as_the_lag_allows() -> None:
    given = Work([True, True, True], [[BUILT], [BUILT], [BUILT]], max_lag_seconds=10, silver_seconds=3)
    given.step()
    assert (given.now, len(given.silver)) == (3, 2), "the first run comes at once"
    given.now = 6.9
    given.step()
    assert len(given.silver) == 2, "a change of second 0 is in silver by second 10 if the run begins at 7"
    given.now = 7
    given.step()
    assert len(given.silver) == 1
    given.now = 100
    given.step()
    assert given.silver == [], "after a quiet time a change waits no longer"


@pytest.mark.parametrize(("max_lag_seconds", "silver_seconds"), [(0, 3), (10, 12)])
def test_silver_runs_follow_each_other_if_no_time_is_left(max_lag_seconds: float, silver_seconds: float) -> None:
    given = Work([True, True], [[BUILT], [BUILT]], max_lag_seconds=max_lag_seconds, silver_seconds=silver_seconds)
    given.step()
    given.step()
    assert given.silver == []


def test_a_failed_silver_run_and_one_without_changes_delay_no_run() -> None:
    given = Work([False, ContractError("no"), True], [[BUILT], [BUILT]], max_lag_seconds=60)
    given.step()
    given.step()
    given.now += 1
    given.step()
    assert given.silver == []


def test_a_failed_node_of_gold_is_retried_although_silver_has_nothing_new() -> None:
    given = Work([True], [[FAILED], RuntimeError("Spark says 'no'"), [BUILT]])
    for left in (2, 1, 0):
        given.step()
        assert len(given.gold) == left
        if left:
            assert failing("gold") == 3 - left
            given.step()
            assert len(given.gold) == left, "too early"
        given.now += 1
    assert (failing("gold"), given.state.failing) == (0, {})
    given.step()


def test_a_closed_gate_is_no_failure_and_waits_for_new_rows() -> None:
    given = Work([True, False, True], [QualityGateClosed("closed"), [BUILT]])
    given.step()
    given.step()
    assert (isinstance(given.work.closed, QualityGateClosed), len(given.gold)) == (True, 1)
    given.step()
    assert (given.work.closed, given.gold) == (None, [])


def test_a_gate_that_is_closed_because_a_check_broke_is_a_failure_and_is_tried_again() -> None:
    given = Work([True], [QualityGateClosed("a check broke", is_broken=True), [BUILT]])
    given.step()
    assert (failing("gold"), given.state.failing) == (1, {"gold": "a check broke"})
    assert isinstance(given.work.closed, QualityGateClosed)
    given.now += 1
    given.step()
    assert (given.gold, given.work.closed, failing("gold"), given.state.failing) == ([], None, 0, {})


def test_a_gate_that_closes_after_a_failure_of_gold_is_the_only_reason_that_is_left() -> None:
    given = Work([True, False, True], [RuntimeError("no disk"), QualityGateClosed("closed"), [FAILED]])
    given.step()
    assert (failing("gold"), given.state.failing) == (1, {"gold": "no disk"})
    given.now += 1
    given.step()
    assert (given.work.gold.failure, failing("gold"), given.state.failing) == (None, 0, {})
    assert isinstance(given.work.closed, QualityGateClosed)
    given.step()
    assert (given.gold, failing("gold")) == ([], 1), "the first failure after the gate waits for no earlier one"
    assert given.work.closed is None
    given.work.gold.succeeded()


def test_a_dead_jvm_ends_the_service() -> None:
    with pytest.raises(Py4JNetworkError):
        Work([Py4JNetworkError("the JVM is gone")], []).step()
