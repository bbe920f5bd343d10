"""How far back the source remembers, and where a token stands in time. Nothing parses a token: the server is asked, by bisection.

`read` on the captured databases is enough: a throw-away stream opened at a time answers with the token that stands there, or says
that the oplog no longer holds it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import pymongo
from bson.raw_bson import RawBSONDocument
from pymongo import errors as mongo
from pymongo.change_stream import ChangeStream

from pipelines.errors import ResumePointLost
from pipelines.model.resume_token import RESET_OR_HEAL
from pipelines.model.user_pipeline import Stage
from pipelines.source.client import AnyClient, next_cluster_time, operation_time, token_data, translate_errors
from pipelines.source.errors import classify
from pipelines.source.resume import ResumePoint
from pipelines.source.stages import Images, Selection
from pipelines.source.stream_opening import StreamLimits, open_stream, token_at

_COUNTING = StreamLimits(max_batch_size=10_000)
_ONE_EVENT = StreamLimits(max_batch_size=1)
_TOKEN_ALONE: Final[Stage] = {"$project": {"_id": 1}}
_LOOKING_SECONDS = 1.0
IN_THE_FUTURE: Final = (
    "it lies in the source's future: this is another cluster, or one that was restored to an earlier time"
)
_OVERTAKEN = 136  # CappedPositionLost: what the server looked at fell off before it had read on


@dataclass(frozen=True)
class OplogReach:
    """What the source remembers, in seconds since the epoch (cluster time)."""

    oldest: int | None
    """None: the oplog has not rolled over yet, it holds everything."""
    present: int
    position: int | None
    """Where the asked-for token stands; None where no stream can go on from it."""
    why_lost: str | None = None
    """The reason why no stream can go on from the token; None: one can."""

    @property
    def headroom_seconds(self) -> int | None:
        """Until the token falls off, if the oplog goes on rolling as it does now. None: nothing falls off yet."""
        if self.oldest is None:
            return None
        return max(0, (self.position or self.oldest) - self.oldest)

    @property
    def age_seconds(self) -> int | None:
        return None if self.position is None else max(0, self.present - self.position)


class Oplog:
    """Questions to the oplog through change streams of one selection.

    Args:
        client: Opened with ``raw=True``.
    """

    def __init__(self, client: AnyClient, selection: Selection, *, expanded_events: bool) -> None:
        self._client, self._selection, self._expanded = client, selection, expanded_events
        judged = (
            selection.user_pipeline.stages
        )  # a user's stage may look at the images; else they would only be looked up
        self._seen = selection if judged else replace(selection, images=Images(None))

    def reaches(self, start: ResumePoint) -> bool:
        """I/O: whether a stream can go on from there. Only a batch that asks for an event looks at the oplog's beginning; it need not find
        one: a server that is still looking after a second has found the beginning.

        Raises:
            StrandlineError: The server says anything but that it has not got the history or cannot read the token.
        """
        with translate_errors("the oplog's reach", phase=start.phase):
            try:
                with pymongo.timeout(_LOOKING_SECONDS), self._open(start, _ONE_EVENT):
                    return True
            except mongo.PyMongoError as error:
                if error.timeout or classify(error) == "oversize":
                    return True
                if (
                    classify(error, start.phase) in ("history_lost", "invalid_token")
                    or getattr(error, "code", None) == _OVERTAKEN
                ):
                    return False
                raise

    def token_at(self, start: ResumePoint = ResumePoint()) -> str:
        """I/O: the token (Extended JSON) right before the first event from *start* on, whether the oplog reaches so far or not."""
        return token_at(self._client, self._selection, start, expanded_events=self._expanded)

    def _data_at(self, seconds: int) -> str:
        return token_data(self.token_at(ResumePoint(cluster_time=(seconds, 0))))

    def present(self) -> str:
        """I/O: ``_data`` of a token that is later than every event that is committed now. The primary's time decides: a member that lags
        would call tokens later that are not."""
        with translate_errors("the cluster's time"):
            return token_data(self.token_at(ResumePoint(cluster_time=next_cluster_time(self._client))))

    def why_unusable(self, token: str) -> str | None:
        """I/O: the reason why no stream can go on from *token*; None: one can."""
        try:
            if token_data(token) > self.present():
                return IN_THE_FUTURE
        except ResumePointLost as lost:
            return lost.message
        return None if self.reaches(ResumePoint(token=token)) else "the source no longer has the history behind it"

    def present_time(self) -> tuple[int, int]:
        """I/O: the source's operation time: seconds since the epoch, and increment."""
        return operation_time(self._client)

    def oldest(self) -> int:
        """I/O: the first second since the epoch that a stream can still start at; 1: the oplog has not rolled over yet."""
        with translate_errors("the oplog's reach"):
            return _first(
                1, self.present_time()[0], lambda seconds: self.reaches(ResumePoint(cluster_time=(seconds, 0)))
            )

    def reach(self, token: str) -> OplogReach:
        """I/O: about sixty openings of a stream, a few milliseconds each."""
        with translate_errors("the oplog's reach"):
            present, _ = self.present_time()
            oldest = self.oldest()
            data = token_data(token)
            first_after = _first(oldest, present + 1, lambda seconds: self._data_at(seconds) > data)
            why_lost = self.why_unusable(token)
        return OplogReach(oldest if oldest > 1 else None, present, None if why_lost else first_after - 1, why_lost)

    def _open(self, start: ResumePoint, limits: StreamLimits) -> ChangeStream[RawBSONDocument]:
        """The events' tokens alone: most events that are too large to be sent do not stand in the way."""
        return open_stream(self._client, self._seen, start, limits, self._expanded, more=[_TOKEN_ALONE])

    def count(self, after: str, through: str, limit: int) -> int | None:
        """I/O: events between two tokens, by reading them; no further than *limit*. None: the source no longer has them, or has one whose
        token alone is too large to be sent."""
        with translate_errors("reading the change stream", phase="resuming"):
            try:
                return self._counted(after, through, limit)
            except mongo.PyMongoError as error:
                if classify(error, "resuming") in ("oversize", "history_lost", "invalid_token"):
                    return None
                raise

    def _counted(self, after: str, through: str, limit: int) -> int:
        found = 0
        with self._open(ResumePoint(token=after), _COUNTING) as stream:
            while found < limit:
                event = stream.try_next()
                if event is not None and str(event["_id"]["_data"]) <= through:
                    found += 1
                elif event is not None or str(stream.resume_token["_data"]) >= through or not stream.alive:  # type: ignore[index]  # why: an opened stream has a token
                    break
        return found

    def silent(self, after: str, through: tuple[int, int]) -> bool:
        """I/O: whether the source has no captured event between the token *after* and cluster time *through*, that time's own included.

        Raises:
            ResumePointLost: The token cannot be read, or is later than the source's present, and so tells of no time.
        """
        if token_data(after) > self.present():
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


def _first(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The smallest number of [low, high] for which *holds*, which is monotonous; *high* where it holds for none below."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
