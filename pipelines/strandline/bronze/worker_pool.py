"""Worker processes of the native engine. Each runs one task at a time. They can be ended from another thread.

A pool of the standard library breaks as a whole when one of its processes is killed, and it cannot end a task.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from queue import SimpleQueue
from typing import Any, Final

from strandline.bronze.data_files import end_with_parent

_END_SECONDS: Final = 1.0


class WorkerDied(Exception):
    """A worker process ended in the middle of a task. The task can be given to another one."""


class _Worker:
    """One process. Not safe for several threads, except `kill`."""

    def __init__(self, context: ForkServerContext) -> None:
        self._tasks, tasks = context.Pipe()
        self._process: ForkServerProcess = context.Process(target=_serve, args=(tasks,), daemon=True)
        with _signals_blocked():
            try:
                self._process.start()
            except (
                EOFError,
                OSError,
            ) as error:  # the process from which they are forked has just ended, or the system has no place
                raise WorkerDied(f"a worker process could not start ({error})") from None
        self.task: Callable[..., Any] | None = None
        """Task in progress. None: the process waits for one."""
        tasks.close()  # the worker has its own: its end closes the pipe

    def run(self, task: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Return the result of *task* in the process. Raises its error, or WorkerDied."""
        self.task = task
        try:
            self._tasks.send((task, arguments))
            is_done, result = self._tasks.recv()
        except (EOFError, OSError):
            self._process.join(_END_SECONDS)
            raise WorkerDied(_end_of(self._process.exitcode)) from None
        finally:
            self.task = None
        if is_done:
            return result
        raise result

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        """End the process, which has no task."""
        self._tasks.close()
        self._process.join(_END_SECONDS)
        self._process.kill()


class WorkerPool:
    """At most *size* processes. They start when they are needed, and end with this process.

    Args:
        preload: Modules that every process has imported before its first task.
    """

    def __init__(self, size: int, preload: list[str]) -> None:
        self._context = multiprocessing.get_context("forkserver")  # a fork would copy locks that threads hold
        self._context.set_forkserver_preload(preload)
        self._free: SimpleQueue[_Worker | None] = SimpleQueue()
        for _ in range(size):
            self._free.put(None)
        self._size = size
        self._started: set[_Worker] = set()

    def run(self, task: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of *task*, which one of the processes runs. Waits for a free one.

        Raises:
            WorkerDied: The process ended before it had the result.
            Exception: The error of *task*.
        """
        worker = self._free.get()
        try:
            if worker is None:
                worker = _Worker(self._context)
                self._started.add(worker)
            return worker.run(task, arguments)
        except WorkerDied:
            if worker is not None:
                self._started.discard(worker)
            worker = None
            raise
        finally:
            self._free.put(worker)

    def kill(self, task: Callable[..., Any]) -> None:
        """End the processes that run *task* now. Their callers get `WorkerDied`."""
        for worker in tuple(self._started):
            if worker.task is task:
                worker.kill()

    def close(self) -> None:
        """End all processes, which have no task."""
        for _ in range(self._size):
            if (worker := self._free.get()) is not None:
                worker.close()


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Block what ends this process in the processes that the block starts, from their first instruction on.

    A terminal sends Ctrl-C to its whole group, and some services send SIGTERM to theirs. Workers end with this process.
    """
    resource_tracker.ensure_running()  # its start ends the block of the signals
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _end_of(code: int | None) -> str:
    """Describe the end of a worker process by its exit code, which is negative for a signal."""
    if code is None or code >= 0:
        return f"a worker process ended with exit code {code}"
    name = signal.Signals(-code).name
    reason = " (memory may have run out)" if name == "SIGKILL" else ""
    return f"a worker process was ended by {name}{reason}"


def _serve(tasks: Connection) -> None:
    """Run tasks until the pipe closes."""
    end_with_parent()
    while True:
        try:
            task, arguments = tasks.recv()
        except EOFError:
            return
        try:
            answer: tuple[bool, Any] = (True, task(*arguments))
        except BaseException as error:  # noqa: BLE001  # why: the other process raises every error of the task
            answer = (False, error)
        try:
            tasks.send(answer)
        except (TypeError, AttributeError, ValueError) as error:  # it cannot be sent to another process
            tasks.send((False, RuntimeError(f"{type(answer[1]).__name__}: {type(error).__name__}")))
