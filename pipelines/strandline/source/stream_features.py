"""Probe of the features of change streams that capture uses. A service may speak MongoDB's protocol and lack some.

Amazon DocumentDB 5.0.0 has change streams and post-batch tokens, and no ``startAfter``.
Source: https://github.com/estuary/connectors/pull/4592
"""

from __future__ import annotations

from typing import Final

from pymongo import errors as mongo

from strandline.errors import ConfigurationError
from strandline.source.client import AnyClient, translate_errors
from strandline.source.errors import NOT_ON_VIEW, UNAUTHORIZED, classify
from strandline.source.resume import ResumePoint
from strandline.source.stages import Selection
from strandline.source.stream_opening import OversizeMode, StreamLimits, first_token, open_stream

_CAPPED_POSITION_LOST = 136
"""It passes in a stream that is open. A stream that begins at the present cannot be behind: there it does not pass."""

_ABOUT_SOMETHING_ELSE: Final = (None, UNAUTHORIZED, NOT_ON_VIEW)
"""Codes of refusals that say nothing of the server's features."""


def check_stream_features(
    client: AnyClient, selection: Selection, *, expanded_events: bool, oversize: OversizeMode
) -> None:
    """Check that the source can open the change stream of a capture, and resume it. The version is not asked.

    I/O: opens two change streams without filters; a few more if one of them is refused.

    Args:
        expanded_events: Capture asks for ``showExpandedEvents``.
        oversize: Mode ``split`` adds a stage.

    Raises:
        ConfigurationError: The source lacks a feature, such as Atlas Flex or Amazon DocumentDB.
    """
    bare = Selection(selection.scope, selection.database, selection.collection)

    def answer(start: ResumePoint, expanded: bool, mode: OversizeMode) -> str | mongo.OperationFailure:
        """Return the stream's first token, or the error with which the source refuses to open the stream."""
        try:
            with open_stream(client, bare, start, StreamLimits(max_batch_size=0, oversize=mode), expanded) as stream:
                return first_token(stream)
        except mongo.OperationFailure as error:
            is_passing = classify(error) == "retriable" and error.code != _CAPPED_POSITION_LOST
            if is_passing or error.code in _ABOUT_SOMETHING_ELSE:
                raise
            return error

    with translate_errors("opening a change stream"):
        token = answer(ResumePoint(), False, "fail")
        if not isinstance(token, str):
            raise _lacks("change streams", token)
        start = ResumePoint(token=token)
        refusal = answer(start, expanded_events, oversize)
        if isinstance(refusal, str):
            return
        answers = {
            "startAfter": answer(start, False, "fail"),
            "showExpandedEvents": answer(ResumePoint(), expanded_events, "fail"),
            "$changeStreamSplitLargeEvent": answer(ResumePoint(), False, oversize),
        }
        missing = [name for name, reply in answers.items() if not isinstance(reply, str)]
        raise _lacks(" and ".join(missing), refusal) if missing else refusal


def _lacks(features: str, refusal: mongo.OperationFailure) -> ConfigurationError:
    return ConfigurationError(
        f"the source has no {features} (code {refusal.code}), which capture needs",
        next_step="use MongoDB 4.4 or newer, in Atlas a dedicated cluster (M10 or larger): strandline explain versions",
    )
