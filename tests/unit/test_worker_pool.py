"""Worker processes: one that is killed costs its own task only, and a task can be ended from outside."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from multiprocessing import forkserver

import pytest

from strandline.bronze.worker_pool import WorkerDied, WorkerPool


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    with closing(WorkerPool(2, [])) as found:
        yield found


def add(one: int, other: int) -> int:
    return one + other


def die(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(60)


def leave(code: int) -> None:
    os._exit(code)


def fail() -> None:
    raise ValueError("a task's own error")


def survive(number: int) -> bool:
    os.kill(os.getpid(), number)
    return True


def wait_long() -> None:
    time.sleep(600)


def test_a_task_has_its_result_and_its_error(pool: WorkerPool) -> None:
    assert [pool.run(add, number, 1) for number in range(5)] == [1, 2, 3, 4, 5]
    with pytest.raises(ValueError, match="a task's own error"):
        pool.run(fail)
    assert pool.run(add, 1, 1) == 2


@pytest.mark.parametrize(
    ("task", "given", "why"),
    [
        (die, signal.SIGUSR1, "was ended by SIGUSR1$"),
        (die, signal.SIGKILL, r"was ended by SIGKILL \(memory may have run out\)$"),
        (leave, 3, "ended with exit code 3$"),
    ],
)
def test_a_process_that_ends_is_named_by_its_signal_and_replaced(
    pool: WorkerPool, task: object, given: int, why: str
) -> None:
    for _ in range(3):  # more than the pool has places
        with pytest.raises(WorkerDied, match=why):
            pool.run(task, given)  # type: ignore[arg-type]  # why: a task of the list above
    assert pool.run(add, 1, 1) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_whole_group_ends_no_task(pool: WorkerPool, number: int) -> None:
    assert pool.run(survive, number)


def test_a_process_that_cannot_start_is_a_dead_worker(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the process from which workers are forked ends at this moment."""

    def refused(_: object) -> None:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    with monkeypatch.context() as patched:
        patched.setattr(forkserver, "connect_to_new_process", refused)
        with pytest.raises(WorkerDied, match=r"could not start \(.*refused\)$"):
            pool.run(add, 1, 1)
    assert pool.run(add, 1, 1) == 2


def test_a_task_in_progress_can_be_ended_and_others_go_on(pool: WorkerPool) -> None:
    errors: list[str] = []

    def run() -> None:
        try:
            pool.run(wait_long)
        except WorkerDied as died:
            errors.append(str(died))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    pool.kill(add)
    assert not errors
    deadline = time.monotonic() + 60
    while any(thread.is_alive() for thread in threads) and time.monotonic() < deadline:
        pool.kill(wait_long)  # again: a process may just be starting
        time.sleep(0.1)
    assert len(errors) == 2
    assert pool.run(add, 1, 1) == 2
