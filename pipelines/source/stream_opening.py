"""How a change stream is opened: at a token or a time, and only where the source still has what was read from it before."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from pymongo import errors as mongo
from pymongo.change_stream import ChangeStream

from pipelines.errors import ResumePointLost, RetriableError
from pipelines.model.position import cluster_time_of
from pipelines.model.resume_token import RESET_OR_HEAL
from pipelines.model.user_pipeline import Stage
from pipelines.source.client import AnyClient, token_data, token_json, translate_errors
from pipelines.source.errors import classify
from pipelines.source.resume import ResumePoint
from pipelines.source.stages import Selection, stream_stages

OversizeMode = Literal["fail", "skip", "split"]


@dataclass(frozen=True)
class StreamLimits:
    """When a batch is full: events, bytes, or the wait since its first event, whichever comes first; and what is not taken as it is."""

    max_batch_size: int = 100_000
    max_bytes: int = 128 * 1024 * 1024
    poll_interval_ms: int = 200
    max_await_time_ms: int = 200
    oversize: OversizeMode = "fail"
    skip_threshold: int = 0
    """Bytes of a document that are left out when skipping; 0: as much as MongoDB can send."""
    retry_limit: int = 0
    """Maximum repeated reads of an event that the server cannot send, before it is passed; -1: no limit."""
    strict: bool = False
    """Stop at a document that JSON cannot show."""
    show_keys: bool = False
    """Errors name a document by its key, not by the key's hash."""
    unique_ids: bool = True
    """`_id`s are unique in the deployment. False: stop at an event that shows another shard key."""


ANSWER_EVENTS = 16_384
_NO_EVENTS = StreamLimits(max_batch_size=0)
_LOOKING_SECONDS = 5.0


def open_stream(
    client: AnyClient,
    selection: Selection,
    start: ResumePoint,
    limits: StreamLimits,
    expanded_events: bool,
    *,
    more: Sequence[Stage] = (),
    one_by_one: bool = False,
) -> ChangeStream[RawBSONDocument]:
    """I/O: opens a change stream; with a client opened as ``raw=True`` its events stay bytes.

    Args:
        more: Stages that stand last.
        one_by_one: One event in an answer.

    Raises:
        PyMongoError: As the server says; `classify` judges it.
    """
    options: dict[str, Any] = {
        "batch_size": 1 if one_by_one else min(limits.max_batch_size, ANSWER_EVENTS),
        **selection.images.watch_options,
        **start.watch_options,
    }
    stages = [
        *stream_stages(selection, None if start.token is None else token_data(start.token), excluding=expanded_events),
        *more,
    ]
    return _watch(client, selection, stages, limits.max_await_time_ms, expanded_events, options)


def _watch(
    client: AnyClient,
    selection: Selection,
    stages: list[Stage],
    max_await_time_ms: int,
    expanded_events: bool,
    options: dict[str, Any],
) -> ChangeStream[RawBSONDocument]:
    options |= {"max_await_time_ms": max_await_time_ms, **({"show_expanded_events": True} if expanded_events else {})}
    if selection.scope == "deployment":
        return client.watch(stages, **options)
    database = client[str(selection.database)]
    if selection.scope == "database":
        return database.watch(stages, **options)
    return database[str(selection.collection)].watch(stages, **options)


def check_last_event(client: AnyClient, selection: Selection, start: ResumePoint, *, expanded_events: bool) -> None:
    """I/O: whether the source still has the last event that was read from it. A token of the server's own making, as an idle stream has,
    is accepted by a source that was restored to an earlier time, and what had been read since then would stay in the lake for ever.

    Whatever stands at that cluster time is the event: no filter, which may have changed, is asked. An event that is older than the
    oplog tells nothing.

    Raises:
        ResumePointLost: There is none at that time, and the source is past it.
        RetriableError: The member that answers has not come so far yet: a secondary that lags.
        PyMongoError: As the server says.
    """
    if start.last_event is None:
        return
    try:
        seconds, increment = cluster_time_of(start.last_event)
        at = Timestamp(seconds, increment)
    except ValueError:
        raise ResumePointLost("the time of the last captured event cannot be read", next_step=RESET_OR_HEAL) from None
    options = {"batch_size": 1, **ResumePoint(cluster_time=(seconds, increment)).watch_options}
    stages: list[Stage] = [{"$project": {"clusterTime": 1}}]
    try:
        with _watch(client, selection, stages, StreamLimits.max_await_time_ms, expanded_events, options) as stream:
            event = stream.try_next()
            if event is None:
                behind = ResumePoint(cluster_time=(seconds, increment + 1))
                event = _awaited(
                    stream, token_data(token_at(client, selection, behind, expanded_events=expanded_events)), at
                )
    except mongo.OperationFailure as error:
        if classify(error) == "history_lost":
            return
        raise
    if event is None or event["clusterTime"] != at:
        raise ResumePointLost(
            f"the source no longer has the last event that it sent ({_time(at)}): it was restored to an earlier time",
            next_step="set capture.on_history_lost: heal, which reads everything again; or strandline stop, then strandline offsets reset",
        )


def _time(at: Timestamp) -> str:
    return datetime.fromtimestamp(at.time, UTC).isoformat()


def _awaited(stream: ChangeStream[RawBSONDocument], beyond: str, at: Timestamp) -> RawBSONDocument | None:
    """The next event, or None as soon as the stream is past the token data *beyond*. *at*: cluster time of the event."""
    deadline = time.monotonic() + _LOOKING_SECONDS
    while (event := stream.try_next()) is None and token_data(token_json(stream.resume_token)) < beyond:
        if time.monotonic() > deadline:
            raise RetriableError(
                f"the member of the source that is read lags: it has not come to the last captured event ({_time(at)})",
                next_step="wait until it has, or choose another member by readPreference in STRANDLINE_SOURCE__URI",
            )
    return event


def token_at(
    client: AnyClient, selection: Selection, start: ResumePoint = ResumePoint(), *, expanded_events: bool = True
) -> str:
    """I/O: the token that stands right before the first event from *start* on (Extended JSON), from a throw-away stream.

    Without a start it is the token of the present: later than every event that is committed now. Nothing is parsed: the server makes it.
    """
    with (
        translate_errors("opening a change stream", phase=start.phase),
        open_stream(client, selection, start, _NO_EVENTS, expanded_events) as stream,
    ):
        while (
            stream.resume_token is None
        ):  # a first batch of size 0 always carries the post-batch token; older servers answer late
            stream.try_next()
        return token_json(stream.resume_token)
