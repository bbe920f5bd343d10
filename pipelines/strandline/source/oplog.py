"""Oplog window of the source, and the time of a resume token. Tokens are not parsed: the server is asked, by bisection.

The role `read` on the captured databases is enough. A temporary stream that is opened at a time answers with the token
of that time, or with the error that the oplog no longer has it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import pymongo
from bson.raw_bson import RawBSONDocument
from pymongo import errors as mongo
from pymongo.change_stream import ChangeStream

from strandline.errors import ResumePointLost
from strandline.model.resume_token import RESET_OR_HEAL, ResumeToken
from strandline.source.client import AnyClient, next_cluster_time, operation_time, token_data, translate_errors
from strandline.source.errors import classify
from strandline.source.resume import ResumePoint
from strandline.source.stages import Images, Selection
from strandline.source.stream_opening import TIME_ONLY, OversizeMode, StreamLimits, open_stream, token_at

_COUNTING = StreamLimits(max_batch_size=10_000)
_ONE_EVENT = StreamLimits(max_batch_size=1)
_START_CHECK_SECONDS = 1.0
IN_THE_FUTURE: Final = (
    "it lies in the source's future: this is another cluster, or one that was restored to an earlier time"
)
_CAPPED_POSITION_LOST = 136  # the oplog dropped the entry while the server was reading it


@dataclass(frozen=True)
class OplogWindow:
    """Range of the source's oplog and the place of one token in it, in seconds since the epoch (cluster time)."""

    oldest: int | None
    """First second that a stream can start at. None: the oplog has not dropped anything yet."""
    present: int
    position: int | None
    """Cluster time of the token. None: no stream can resume from the token."""
    why_lost: str | None = None
    """Reason why no stream can resume from the token. None: a stream can."""

    @property
    def headroom_seconds(self) -> int | None:
        """Return the seconds between the oldest oplog entry and the token; None if the oplog drops nothing yet.

        At the current rate of writes the token is lost after this time. 0: no stream can resume from it.
        """
        if self.oldest is None:
            return None
        return max(0, (self.position or self.oldest) - self.oldest)

    @property
    def age_seconds(self) -> int | None:
        """Return the age of the token; None if no stream can resume from it."""
        return None if self.position is None else max(0, self.present - self.position)


class Oplog:
    """Queries about the oplog, answered by temporary change streams of one selection.

    Args:
        client: Opened with ``raw=True``.
        expanded_events: Ask for ``showExpandedEvents`` (MongoDB 6.0 and newer).
        oversize: Handling of large events in the capture's own stream.
    """

    def __init__(
        self, client: AnyClient, selection: Selection, *, expanded_events: bool, oversize: OversizeMode = "fail"
    ) -> None:
        self._client, self._selection, self._expanded = client, selection, expanded_events
        self._oversize = oversize
        # Only a user's stage may need the images; without one, looking them up is wasted work.
        needs_images = selection.user_pipeline.stages
        self._selection_to_read = selection if needs_images else replace(selection, images=Images(None))

    @property
    def is_of_several_shards(self) -> bool:
        """Return True if a mongos answers."""
        return self._client.is_mongos

    def can_start_at(self, start: ResumePoint) -> bool:
        """Return True if a stream can start at *start*.

        I/O: opens a stream and asks for one event, because only then the server checks the start of the oplog. A server
        that still searches for an event after one second has passed that check.

        Raises:
            StrandlineError: Any error except lost history and an invalid token.
        """
        with translate_errors("the oplog's reach", phase=start.phase):
            try:
                with pymongo.timeout(_START_CHECK_SECONDS), self._open(start, _ONE_EVENT):
                    return True
            except mongo.PyMongoError as error:
                if error.timeout or classify(error) == "oversize":
                    return True
                if (
                    classify(error, start.phase) in ("history_lost", "event_missing", "invalid_token")
                    or getattr(error, "code", None) == _CAPPED_POSITION_LOST
                ):
                    return False
                raise

    def token_at(self, start: ResumePoint = ResumePoint()) -> str:
        """Return the token (Extended JSON) right before the first event from *start* on. I/O: opens a stream.

        The server also returns a token for a time that the oplog no longer has.
        """
        return token_at(self._client, self._selection, start, expanded_events=self._expanded)

    def _data_at(self, seconds: int) -> str:
        return token_data(self.token_at(ResumePoint(cluster_time=(seconds, 0))))

    def present_token_data(self) -> str:
        """Return ``_data`` of a token that is later than every event that is committed now.

        I/O: asks the primary for its time and opens a stream. The time of a lagging secondary would be too early.
        """
        with translate_errors("the cluster's time"):
            return token_data(self.token_at(ResumePoint(cluster_time=next_cluster_time(self._client))))

    def token_format(self) -> str:
        """Return the format (`ResumeToken.format`) of the tokens that the capture's own stream gives now.

        I/O: opens a stream.
        """
        token = token_at(self._client, self._selection, expanded_events=self._expanded, oversize=self._oversize)
        return ResumeToken.parse(token).format

    def is_of_the_future(self, token: str) -> bool:
        """Return True if *token* is later than every token that the source can have given. I/O: as above.

        Tokens of one time differ by format, and a stream that splits events uses the later format. So a token of the
        next possible time is not of the future.
        """
        with translate_errors("the cluster's time"):
            seconds, increment = next_cluster_time(self._client)
            beyond = self.token_at(ResumePoint(cluster_time=(seconds, increment + 1)))
            return token_data(token) > token_data(beyond)

    def unusable_reason(self, token: str) -> str | None:
        """Return the reason why no stream can resume from *token*; None if a stream can. I/O: opens streams."""
        try:
            if self.is_of_the_future(token):
                return IN_THE_FUTURE
        except ResumePointLost as lost:
            return lost.message
        return None if self.can_start_at(ResumePoint(token=token)) else "the source no longer has the history behind it"

    def is_fragment(self, token: str) -> bool:
        """Return True if *token* is that of a fragment of an event. I/O: opens streams.

        Only a stream that splits the event in the same way can start after such a token.
        """
        start = ResumePoint(token=token)
        with translate_errors("the oplog's reach", phase=start.phase):
            try:
                with self._open_tokens(start, _ONE_EVENT):
                    return False
            except mongo.OperationFailure as error:
                return classify(error, start.phase) == "event_missing" and self.can_start_at(start)

    def present_time(self) -> tuple[int, int]:
        """Return the source's operation time: seconds since the epoch, and increment. I/O: sends a ping."""
        return operation_time(self._client)

    def oldest(self) -> int:
        """Return the first second (since the epoch) that a stream can start at; 1 if the oplog has dropped nothing yet.

        I/O: opens about thirty streams; one if the oplog has dropped nothing.
        """
        with translate_errors("the oplog's reach"):
            present, _ = self.present_time()
            if self._can_start_at_second(1):
                return 1
            return _first(2, present, self._can_start_at_second)

    def _can_start_at_second(self, seconds: int) -> bool:
        return self.can_start_at(ResumePoint(cluster_time=(seconds, 0)))

    def window(self, token: str) -> OplogWindow:
        """Return the oplog window and the place of *token* in it.

        I/O: opens about forty streams, a few milliseconds each.
        """
        with translate_errors("the oplog's reach"):
            present, _ = self.present_time()
            oldest = self.oldest()
            data = token_data(token)
            first_after = _first_from_above(oldest, present + 1, lambda seconds: self._data_at(seconds) > data)
            why_lost = self.unusable_reason(token)
        return OplogWindow(oldest if oldest > 1 else None, present, None if why_lost else first_after - 1, why_lost)

    def _open(self, start: ResumePoint, limits: StreamLimits) -> ChangeStream[RawBSONDocument]:
        """Open a stream of tokens; or the capture's own stream, if only that one can start at *start*."""
        try:
            return self._open_tokens(start, limits)
        except mongo.OperationFailure as error:
            if classify(error, start.phase) != "event_missing":
                raise
        as_capture = replace(limits, oversize=self._oversize)
        return open_stream(self._client, self._selection, start, as_capture, self._expanded)

    def _open_tokens(self, start: ResumePoint, limits: StreamLimits) -> ChangeStream[RawBSONDocument]:
        """Open a stream that sends tokens only, so that most oversize events cause no error."""
        return open_stream(self._client, self._selection_to_read, start, limits, self._expanded, more=[TIME_ONLY])

    def count(self, after: str, through: str, limit: int) -> int | None:
        """Return the number of events between two tokens, at most *limit*. I/O: reads the events.

        Return None if the source no longer has the events, or if the token of one is too large to be sent.
        """
        with translate_errors("reading the change stream", phase="resuming"):
            try:
                return self._counted(after, through, limit)
            except mongo.PyMongoError as error:
                if classify(error, "resuming") in ("oversize", "history_lost", "event_missing", "invalid_token"):
                    return None
                raise

    def _counted(self, after: str, through: str, limit: int) -> int:
        count = 0
        with self._open(ResumePoint(token=after), _COUNTING) as stream:
            while count < limit:
                event = stream.try_next()
                if event is not None and str(event["_id"]["_data"]) <= through:
                    count += 1
                elif event is not None or str(stream.resume_token["_data"]) >= through or not stream.alive:  # type: ignore[index]  # why: an opened stream has a token
                    break
        return count

    def has_no_events(self, after: str, through: tuple[int, int]) -> bool:
        """Return True if no captured event lies after the token *after* and up to cluster time *through*, inclusive.

        I/O: reads the change stream up to the first event.

        Raises:
            ResumePointLost: The token cannot be read, or is later than the source's present time.
        """
        if self.is_of_the_future(after):
            raise ResumePointLost(f"the committed position is lost: {IN_THE_FUTURE}", next_step=RESET_OR_HEAL)
        seconds, increment = through
        end = token_data(self.token_at(ResumePoint(cluster_time=through)))
        beyond = token_data(self.token_at(ResumePoint(cluster_time=(seconds, increment + 1))))
        if token_data(after) >= beyond:
            return True
        with (
            translate_errors("reading the change stream", phase="resuming"),
            self._open(ResumePoint(token=after), _COUNTING) as stream,
        ):
            while stream.alive:
                event = stream.try_next()
                if event is not None:
                    return str(event["_id"]["_data"]) >= beyond
                if str(stream.resume_token["_data"]) >= end:  # type: ignore[index]  # why: an opened stream has a token
                    return True
        return False


def _first_from_above(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the same as `_first`. Asks fewer times if the number is near *high*."""
    step = 1
    while high - step > low and holds(high - step):
        high, step = high - step, step * 2
    return _first(max(low, high - step), high, holds)


def _first(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the smallest number in [low, high] for which the monotonic *holds* is True; *high* if there is none."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
