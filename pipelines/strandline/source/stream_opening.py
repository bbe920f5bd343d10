"""Opening of a change stream at a token or a time, and a check that the source was not restored to an earlier time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from pymongo import errors as mongo
from pymongo.change_stream import ChangeStream

from strandline.errors import ConfigurationError, ResumePointLost, RetriableError
from strandline.model.position import cluster_time_of
from strandline.model.resume_token import RESET_OR_HEAL
from strandline.model.user_pipeline import Stage
from strandline.source.client import AnyClient, token_data, token_json, translate_errors
from strandline.source.errors import classify
from strandline.source.oversize_events import SPLIT_STAGE
from strandline.source.raw_reply import raw_replies, watch_deployment
from strandline.source.resume import ResumePoint
from strandline.source.stages import Images, Selection, stream_stages

OversizeMode = Literal["fail", "skip", "split"]


@dataclass(frozen=True)
class StreamLimits:
    """Limits of a batch (events, bytes, wait; the first one reached counts), and handling of large events."""

    max_batch_size: int = 100_000
    max_bytes: int = 128 * 1024 * 1024
    poll_interval_ms: int = 200
    """Time in milliseconds after which a batch closes although it is not full."""
    max_await_time_ms: int = 200
    """Maximum time in milliseconds that the server waits for an event before it replies."""
    oversize: OversizeMode = "fail"
    skip_threshold: int = 0
    """In mode `skip`, leave out documents above this size, in bytes. 0: no limit."""
    retry_limit: int = 0
    """Maximum repeated reads of an event that the server cannot send, before it is skipped. -1: no limit."""
    strict: bool = False
    """Stop at a document that JSON cannot represent."""
    show_keys: bool = False
    """Errors name a document by its key. False: by a hash of its key."""
    unique_ids: bool = True
    """`_id`s are unique in the deployment. False: stop at an event whose document key has more fields than `_id`."""


REPLY_EVENTS = 8_192
"""Maximum events in one reply of the server. The driver holds a reply three times, so larger replies take more memory.
Smaller ones take more time where the server is far away: with 4,096 and a round trip of 80 ms, a quarter more."""
TIME_ONLY: Final[Stage] = {"$project": {"_id": 1, "clusterTime": 1}}
"""Stage that leaves token and cluster time of an event, so that no event is too large to be sent."""
_NO_EVENTS = StreamLimits(max_batch_size=0)
_MAX_LAG_WAIT_SECONDS = 5.0
_MAX_REPLIES_WITHOUT_TOKEN: Final = 100
"""About 20 s. An idle sharded cluster has a token after its next no-op, which comes every ten seconds."""
_BAD_VALUE = 2


def open_stream(
    client: AnyClient,
    selection: Selection,
    start: ResumePoint,
    limits: StreamLimits,
    expanded_events: bool,
    *,
    more: Sequence[Stage] = (),
    one_by_one: bool = False,
    by_reply: bool = False,
) -> ChangeStream[RawBSONDocument]:
    """Open a change stream. With a client that was opened with ``raw=True`` its events stay bytes.

    Args:
        start: Position after which, or time at which, the stream starts.
        more: Stages to append to the pipeline. The stage of mode `split` follows them.
        one_by_one: Ask for one event per reply.
        by_reply: Return all events of a reply as one item (`ReplyDocuments`). See `EventStream`.

    Raises:
        PyMongoError: The server's error; see `classify`.
    """
    options: dict[str, Any] = {
        "batch_size": 1 if one_by_one else min(limits.max_batch_size, REPLY_EVENTS),
        **selection.images.watch_options,
        **start.watch_options,
    }
    stages = [
        *stream_stages(selection, None if start.token is None else token_data(start.token), excluding=expanded_events),
        *more,
        *([SPLIT_STAGE] if limits.oversize == "split" else []),
    ]
    return _watch(client, selection, stages, limits.max_await_time_ms, expanded_events, options, by_reply=by_reply)


def _watch(
    client: AnyClient,
    selection: Selection,
    stages: list[Stage],
    max_await_time_ms: int,
    expanded_events: bool,
    options: dict[str, Any],
    *,
    by_reply: bool = False,
) -> ChangeStream[RawBSONDocument]:
    options |= {"max_await_time_ms": max_await_time_ms, **({"show_expanded_events": True} if expanded_events else {})}
    if selection.scope == "deployment":
        return (
            watch_deployment(raw_replies(client.admin), stages, options)
            if by_reply
            else client.watch(stages, **options)
        )
    database = client[str(selection.database)]
    if by_reply:
        database = raw_replies(database)
    if selection.scope == "database":
        return database.watch(stages, **options)
    return database[str(selection.collection)].watch(stages, **options)


def images_are_enabled(client: AnyClient, selection: Selection) -> bool:
    """Return False if the feature compatibility version is below 6.0. The server must be 6.0 or newer.

    I/O: opens a change stream with post-images, which such a server refuses with code 2. It accepts pre-images, and
    records none. To read the version itself needs a privilege that `read` does not include.
    """
    bare = Selection(selection.scope, selection.database, selection.collection, images=Images("whenAvailable"))
    with translate_errors("opening a change stream"):
        try:
            with open_stream(client, bare, ResumePoint(), _NO_EVENTS, expanded_events=True):
                return True
        except mongo.OperationFailure as error:
            if error.code != _BAD_VALUE:
                raise
            return False


def check_last_event(client: AnyClient, selection: Selection, start: ResumePoint, *, expanded_events: bool) -> None:
    """Check that the source still has the last event that was read from it.

    A source that was restored to an earlier time accepts a post-batch token, which an idle stream has. Changes that
    were read after the restored time would then stay in the lake for ever.

    I/O: opens a stream at the event's cluster time. Any event at that time counts; filters are not applied, because
    they may have changed. An event that is older than the oplog is not checked.

    Raises:
        ResumePointLost: The source has passed that time and has no event there.
        RetriableError: The member that answers is a secondary that lags behind that time.
        PyMongoError: Any other error of the server.
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
            next_step=(
                "set capture.on_history_lost: heal, which reads everything again; "
                "or strandline stop, then strandline offsets reset"
            ),
        )


def _time(at: Timestamp) -> str:
    return datetime.fromtimestamp(at.time, UTC).isoformat()


def _awaited(stream: ChangeStream[RawBSONDocument], beyond: str, at: Timestamp) -> RawBSONDocument | None:
    """Return the next event; None once the stream has passed the token data *beyond*.

    *at* is the cluster time of the event, for the message.
    """
    deadline = time.monotonic() + _MAX_LAG_WAIT_SECONDS
    while (event := stream.try_next()) is None and token_data(token_json(stream.resume_token)) < beyond:
        if time.monotonic() > deadline:
            raise RetriableError(
                f"the member of the source that is read lags: it has not come to the last captured event ({_time(at)})",
                next_step="wait until it has, or choose another member by readPreference in STRANDLINE_SOURCE__URI",
            )
    return event


def token_at(
    client: AnyClient,
    selection: Selection,
    start: ResumePoint = ResumePoint(),
    *,
    expanded_events: bool = True,
    oversize: OversizeMode = "fail",
) -> str:
    """Return the token (Extended JSON) right before the first event from *start* on.

    Without a start the token is later than every event that is committed now. I/O: opens a temporary stream; the server
    makes the token.
    """
    limits = replace(_NO_EVENTS, oversize=oversize)
    with (
        translate_errors("opening a change stream", phase=start.phase),
        open_stream(client, selection, start, limits, expanded_events) as stream,
    ):
        return first_token(stream)


def first_token(stream: ChangeStream[RawBSONDocument]) -> str:
    """Return the post-batch token (Extended JSON) of a stream that was opened for no events.

    I/O: reads replies until one has the token, which older servers send late.

    Raises:
        ConfigurationError: No reply has a token.
    """
    for _ in range(_MAX_REPLIES_WITHOUT_TOKEN):
        if stream.resume_token is not None:
            return token_json(stream.resume_token)
        stream.try_next()
    raise ConfigurationError(
        "the source sends no post-batch resume token with its change stream, which capture needs",
        next_step="use MongoDB 4.4 or newer: strandline explain versions",
    )
