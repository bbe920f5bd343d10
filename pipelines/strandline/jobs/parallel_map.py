"""Run the same work on several items in parallel."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextvars import copy_context
from dataclasses import dataclass
from typing import TypeVar

from strandline.errors import one_line

T = TypeVar("T")
R = TypeVar("R")

_log = logging.getLogger("strandline")


@dataclass(frozen=True)
class _Failed:
    item: object
    error: Exception


def parallel_map(pool: Executor, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Return the result of *work* for each of *items*, in their order.

    Effects on failure:
        The work on all other items is completed. Then the first error is raised, and the other errors are logged.
    """

    def try_item(item: T) -> R | _Failed:
        try:
            return work(item)
        except Exception as error:  # noqa: BLE001  # why: an error of one item must not stop the others; it is raised below
            return _Failed(item, error)

    # a copy of the context for each: a span of the caller is the parent of spans in the threads
    outcomes = list(pool.map(lambda item, context: context.run(try_item, item), items, [copy_context() for _ in items]))
    failed = [outcome for outcome in outcomes if isinstance(outcome, _Failed)]
    for outcome in failed[1:]:
        _log.error("%s failed, too: %s", outcome.item, one_line(outcome.error))
    if failed:
        raise failed[0].error
    return [outcome for outcome in outcomes if not isinstance(outcome, _Failed)]
