"""The same work on several tables at once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeVar

from pipelines.errors import one_line

T = TypeVar("T")
R = TypeVar("R")

_log = logging.getLogger("strandline")


@dataclass(frozen=True)
class _Failed:
    item: object
    error: Exception


def parallel_map(pool: Executor, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """What *work* made of each of *items*, in their order.

    Effects on failure:
        The work on all others is done. Then the first error is raised; the log has the others.
    """

    def tried(item: T) -> R | _Failed:
        try:
            return work(item)
        except Exception as error:  # noqa: BLE001  # why: what is wrong with one table must not hold back the others; it is raised below
            return _Failed(item, error)

    ended = list(pool.map(tried, items))
    failed = [each for each in ended if isinstance(each, _Failed)]
    for each in failed[1:]:
        _log.error("%s failed, too: %s", each.item, one_line(each.error))
    if failed:
        raise failed[0].error
    return [each for each in ended if not isinstance(each, _Failed)]
