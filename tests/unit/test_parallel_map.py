"""The same work on several items in parallel."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from strandline.errors import ContractError, RetriableError
from strandline.jobs.parallel_map import parallel_map


def test_results_come_in_the_order_of_the_items() -> None:
    with ThreadPoolExecutor(3) as pool:
        assert parallel_map(pool, lambda number: number * 2, range(10)) == [number * 2 for number in range(10)]


def test_a_failed_item_stops_no_other_and_its_error_is_raised_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    done: list[str] = []

    def work(table: str) -> None:
        if table == "a":
            raise ContractError("a is broken", next_step="mend it")
        if table == "c":
            raise RetriableError("c does not answer")
        done.append(table)

    with (
        ThreadPoolExecutor(1) as pool,
        caplog.at_level(logging.ERROR),
        pytest.raises(ContractError, match="a is broken → mend it"),
    ):
        parallel_map(pool, work, ["a", "b", "c", "d"])
    assert done == ["b", "d"]
    assert caplog.messages == ["c failed, too: c does not answer"]


def test_an_interruption_ends_it_at_once() -> None:
    begun: list[int] = []

    def work(number: int) -> None:
        begun.append(number)
        time.sleep(0.01)
        raise KeyboardInterrupt

    with ThreadPoolExecutor(1) as pool, pytest.raises(KeyboardInterrupt):
        parallel_map(pool, work, range(200))
    assert len(begun) < 200
