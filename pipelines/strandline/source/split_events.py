"""Resume tokens near events that the server splits.

A stream can resume at a fragment only if it splits the event in the same way: with `SPLIT_STAGE` and the same images. A
stream that splits an event cannot resume at the token that the event had as a whole. Both give code 280 or 7182504
(measured on 6.0.27), and nothing is lost.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from strandline.model.position import cluster_time_of
from strandline.source.change_batch import cluster_time
from strandline.source.client import AnyClient, token_data, token_json
from strandline.source.raw_event import token_of
from strandline.source.resume import ResumePoint
from strandline.source.stages import Images, Selection
from strandline.source.stream_opening import TIME_ONLY, StreamLimits, open_stream, token_at


@dataclass
class _SplitEvent:
    """An event that was joined from fragments."""

    token: str
    """``_data`` of the last fragment's token."""
    time: str
    """Cluster time in hex."""
    better_token: str | None = None
    """Token (Extended JSON) of the same place with which any stream can resume. None: not known yet."""


class FragmentTokens:
    """Replaces the token of the last fragment of an event by one with which any stream can resume.

    On a replica set the token of the next possible cluster time names the same place, once all events of the event's
    cluster time have come. On a mongos, another shard may still have some of them.
    """

    def __init__(self, client: AnyClient, selection: Selection, *, expanded_events: bool) -> None:
        self._client, self._selection, self._expanded = client, selection, expanded_events
        self._newest: deque[_SplitEvent] = deque(maxlen=2)  # a batch may end before the newest

    def add(self, event: bytes) -> None:
        """Keep the token of *event*, which was joined from fragments."""
        self._newest.append(_SplitEvent(str(token_of(event)["_data"]), cluster_time(event) or ""))

    def holds(self, events: Sequence[bytes]) -> bool:
        """Return True if the last of *events* was joined from fragments."""
        return bool(events) and self._of(token_of(events[-1])) is not None

    def replaced(self, token: Any, next_event: str | None) -> str:
        """Return *token* as Extended JSON, or a better token of the same place.

        I/O: opens a stream, once after each event that was split.

        Args:
            next_event: Cluster time of the next event in hex. None: the stream has none. Empty: unknown.
        """
        split = self._of(token)
        if split is None:
            return token_json(token)
        is_over = next_event is None or next_event > split.time
        if split.better_token is None and is_over and not self._client.is_mongos:
            seconds, increment = cluster_time_of(split.time)
            after = ResumePoint(cluster_time=(seconds, increment + 1))
            split.better_token = token_at(self._client, self._selection, after, expanded_events=self._expanded)
        return split.better_token or token_json(token)

    def _of(self, token: Any) -> _SplitEvent | None:
        return next((event for event in self._newest if event.token == token["_data"]), None)


def start_past_own_event(
    client: AnyClient, selection: Selection, start: ResumePoint, stop: threading.Event, *, expanded_events: bool
) -> ResumePoint:
    """Return a start after the event of the token of *start*, and before the next event.

    I/O: opens a stream of tokens, which finds every event that is not a fragment. Waits until it moves or *stop* is
    set.

    Raises:
        PyMongoError: That stream does not find the event either.
    """
    bare = replace(selection, images=Images(None))
    with open_stream(client, bare, start, StreamLimits(), expanded_events, more=[TIME_ONLY]) as stream:
        event, own = stream.try_next(), None if start.token is None else token_data(start.token)
        while event is None and not stop.is_set() and token_data(token_json(stream.resume_token)) == own:
            event = stream.try_next()
        if event is None:
            return replace(start, token=token_json(stream.resume_token))
        at = event["clusterTime"]
        return ResumePoint(cluster_time=(at.time, at.inc), last_event=start.last_event)
