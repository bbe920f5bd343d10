"""What ``--to`` means: a token, a time, a version of bronze, the present, or the oldest that the source remembers. And ``start_at``."""

from __future__ import annotations

import time

from bson import json_util
from pyspark.errors import PySparkException

from pipelines.bronze.offsets import committed
from pipelines.errors import ConfigurationError, ResumePointLost
from pipelines.io.versions import VersionGone
from pipelines.jobs.context import JobContext
from pipelines.model.resume_token import ResumeToken
from pipelines.model.table_schemas import bronze_table
from pipelines.model.timestamps import TIME_EXAMPLE, parse_time
from pipelines.source.client import token_json
from pipelines.source.oplog import Oplog
from pipelines.source.resume import ResumePoint


def offset_target(ctx: JobContext, to: str, oplog: Oplog) -> ResumePoint:
    """I/O: the source is asked for ``now`` and ``oldest``, bronze for a version.

    Raises:
        ConfigurationError: *to* is none of them, or bronze no longer has that version.
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
    found = _cluster_time(seconds, oplog, named=repr(to), next_step="strandline offsets alter --to now")
    return _present(oplog) if found is None else ResumePoint(cluster_time=found)


def configured_start(start_at: str | None, oplog: Oplog) -> tuple[int, int] | None:
    """I/O: ``capture.start_at`` as a cluster time; None: now.

    Raises:
        ConfigurationError: It is no time since 1970, or one that the source has forgotten or not come to: the server would give a token for
            either, and then refuse it, or nothing would come.
    """
    if start_at is None:
        return None
    seconds, example = seconds_of(start_at), f"{TIME_EXAMPLE}; or leave it out to start now"
    if seconds is None:
        raise ConfigurationError(f"capture.start_at is no ISO 8601 time since 1970: {start_at!r}", next_step=example)
    found = _cluster_time(seconds, oplog, named=f"capture.start_at {start_at!r}", next_step=example)
    if found is not None and not oplog.can_start_at(ResumePoint(cluster_time=found)):
        raise ConfigurationError(
            f"the source no longer has the history behind capture.start_at {start_at!r}",
            next_step="choose a later time, or leave it out to start now",
        )
    return found


def seconds_of(text: str) -> int | None:
    """Seconds since the epoch of an ISO 8601 time (UTC where it names no zone). None: no such time, or none that a source can have."""
    try:
        seconds = int(parse_time(text).timestamp())
    except (ValueError, OverflowError):  # the first and the last day of the calendar are none in every zone
        return None
    return seconds if seconds > 0 else None


def _cluster_time(seconds: int, oplog: Oplog, *, named: str, next_step: str) -> tuple[int, int] | None:
    """I/O: None is the present, for cluster time stands still while nothing is written. Raises ConfigurationError for a later one."""
    present, _ = oplog.present_time()
    if present < seconds <= time.time():
        return None
    if seconds > present:
        raise ConfigurationError(f"{named} lies in the source's future", next_step=next_step)
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


def _token_of_version(ctx: JobContext, version: int) -> str:
    """The token that bronze remembered as of one of its versions."""
    bronze = bronze_table(ctx.settings.source.name)
    try:
        last = committed(ctx.tables, bronze, version=version) if version <= ctx.tables.version(bronze) else None
    except (VersionGone, PySparkException):  # it is too old, or its files are gone
        raise ConfigurationError(
            f"version {version} of {bronze} cannot be read any more: Delta keeps old versions for delta.deletedFileRetentionDuration",
            next_step="strandline offsets history, then --to with one of its tokens",
        ) from None
    if last is None or last.resume_token is None:
        raise ConfigurationError(
            f"{bronze} held no offset at version {version}", next_step="strandline offsets history"
        )
    return last.resume_token
