"""Parse ``--to`` of ``strandline offsets alter``, and ``capture.start_at``, into a place in the change stream."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Final

from bson import json_util

from strandline.bronze.offsets import committed
from strandline.errors import ConfigurationError, ResumePointLost
from strandline.io.tables.table_store import VersionGone
from strandline.jobs.lake_context import LakeContext
from strandline.model.resume_token import ResumeToken
from strandline.model.table_schemas import bronze_table
from strandline.model.timestamps import TIME_EXAMPLE, seconds_of
from strandline.source.client import token_json
from strandline.source.oplog import Oplog
from strandline.source.resume import ResumePoint

_OPERATION_TIME: Final = re.compile(r"(?:Timestamp\()?\s*(\d{1,10})\s*,\s*(\d{1,10})\s*\)?")


def offset_target(ctx: LakeContext, to: str, oplog: Oplog) -> ResumePoint:
    """Return the place in the change stream that *to* names.

    I/O: reads the source for a time, ``now`` and ``oldest``; reads bronze for a version.

    Args:
        to: Resume token, time (ISO 8601), version of the bronze table, ``now`` or ``oldest``.

    Raises:
        ConfigurationError: *to* has none of these forms, is a time of the future, or is a version that bronze no
            longer has.
    """
    if to == "now":
        return _present(oplog)
    if to == "oldest":
        return ResumePoint(cluster_time=(oplog.oldest(), 0))
    if to.startswith("{"):
        return ResumePoint(token=_token(to))
    if to.isdecimal() and len(to) < 12:
        return ResumePoint(token=_token_of_version(ctx, int(to)))
    if len(to) >= 12 and set(to.upper()) <= set("0123456789ABCDEF"):
        return ResumePoint(token=json_util.dumps({"_data": to.upper()}))
    if (seconds := seconds_of(to)) is None:
        raise ConfigurationError(
            f"{to!r} is no token, time or table version",
            next_step=f'{TIME_EXAMPLE}; or 17, now, oldest, or \'{{"_data": "82…"}}\'',
        )
    cluster_time = _cluster_time(seconds, oplog, label=repr(to), next_step="strandline offsets alter --to now")
    return _present(oplog) if cluster_time is None else ResumePoint(cluster_time=cluster_time)


def configured_start(
    start_at: str | None,
    oplog: Oplog,
    setting: str = "capture.start_at",
    without: str = "leave it out to start now",
) -> tuple[int, int] | None:
    """Return the time of a setting as a cluster time: seconds and increment. None: start at the present.

    I/O: reads the source.

    Args:
        start_at: Value of the setting.
        setting: Name of the setting, for the errors.
        without: Way on without the setting, for the errors.

    Raises:
        ConfigurationError: The time is invalid, before 1970, in the future, or before the oldest event in the oplog.
            The server would accept such a time, and then fail or send no event.
    """
    if start_at is None:
        return None
    seconds, example = seconds_of(start_at), f"{TIME_EXAMPLE}; or {without}"
    if seconds is None:
        raise ConfigurationError(f"{setting} is no ISO 8601 time since 1970: {start_at!r}", next_step=example)
    cluster_time = _cluster_time(seconds, oplog, label=f"{setting} {start_at!r}", next_step=example)
    if cluster_time is not None and not oplog.can_start_at(ResumePoint(cluster_time=cluster_time)):
        oldest = datetime.fromtimestamp(oplog.oldest(), UTC).isoformat()
        raise ConfigurationError(
            f"the source no longer has the history behind {setting} {start_at!r}: its oplog begins at {oldest}",
            next_step=f"choose a later time, or {without}",
        )
    return cluster_time


def operation_time_in(text: str) -> tuple[int, int] | None:
    """Return the operation time of a MongoDB session, such as ``1764300000,3``. None: *text* is no operation time."""
    operation = _OPERATION_TIME.fullmatch(text.strip())
    return None if operation is None else (int(operation[1]), int(operation[2]))


def _cluster_time(seconds: int, oplog: Oplog, *, label: str, next_step: str) -> tuple[int, int] | None:
    """Return the cluster time of *seconds*. None: the present.

    The cluster time of an idle source stands still, so a time between it and the clock counts as the present.

    I/O: reads the source.

    Args:
        label: Name of the time in the error.

    Raises:
        ConfigurationError: The time is in the future.
    """
    present, _ = oplog.present_time()
    if present < seconds <= time.time():
        return None
    if seconds > present:
        raise ConfigurationError(f"{label} lies in the source's future", next_step=next_step)
    return seconds, 0


def _present(oplog: Oplog) -> ResumePoint:
    return ResumePoint(token=json_util.dumps({"_data": oplog.present_token_data()}))


def _token(text: str) -> str:
    try:
        return token_json(ResumeToken.parse(text).document)
    except ResumePointLost:
        raise ConfigurationError(
            "the token is no document with _data", next_step="copy it whole from strandline offsets history"
        ) from None


def _token_of_version(ctx: LakeContext, version: int) -> str:
    """Return the resume token that bronze held at *version* of its table."""
    bronze = bronze_table(ctx.settings.source.name)
    try:
        last = committed(ctx.tables, bronze, version=version) if version <= ctx.tables.version(bronze) else None
    except VersionGone:  # the version is too old, or its files are deleted
        raise ConfigurationError(
            f"version {version} of {bronze} cannot be read any more: "
            "Delta keeps old versions for delta.deletedFileRetentionDuration",
            next_step="strandline offsets history, then --to with one of its tokens",
        ) from None
    if last is None or last.resume_token is None:
        raise ConfigurationError(
            f"{bronze} held no offset at version {version}", next_step="strandline offsets history"
        )
    return last.resume_token
