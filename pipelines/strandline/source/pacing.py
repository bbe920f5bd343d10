"""Pace of a read: a reply of the server is asked for no earlier than the documents before it allow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from strandline.model.snapshot_policy import PACED_SECONDS, Pace

T = TypeVar("T")


def paced(
    replies: Iterable[Sequence[T]],
    pace: Pace,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Sequence[T]]:
    """Yield *replies*. Wait after each one that came too fast, in total no longer than `PACED_SECONDS`.

    Args:
        replies: Read when they are needed.
        clock: Seconds that never go back.
    """
    began, documents, left = clock(), 0, PACED_SECONDS
    for reply in replies:
        yield reply
        documents += len(reply)
        wait = min(began + pace.seconds_for(documents) - clock(), left)
        if wait > 0:
            sleep(wait)
            left -= wait
