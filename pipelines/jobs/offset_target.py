"""What ``--to`` means: a token, a time, a version of bronze, the present, or the oldest that the source remembers."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from bson import json_util
from pyspark.errors import PySparkException

from pipelines.bronze.offsets import committed
from pipelines.errors import ConfigurationError
from pipelines.jobs.context import JobContext
from pipelines.model.columns import bronze_table
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
    try:
        moment = datetime.fromisoformat(to).astimezone(UTC)
    except ValueError:
        raise ConfigurationError(
            f"{to!r} is no token, time or table version",
            next_step='write --to like 2026-01-31T12:00:00+00:00, 17, now, oldest or \'{"_data": "82…"}\'',
        ) from None
    seconds = int(moment.timestamp())
    if oplog.present_seconds() < seconds <= time.time():
        return _present(oplog)  # cluster time stands still while nothing is written
    return ResumePoint(cluster_time=(seconds, 0))


def _present(oplog: Oplog) -> ResumePoint:
    return ResumePoint(token=json_util.dumps({"_data": oplog.present()}))


def _token(text: str) -> str:
    try:
        token = json_util.loads(text)
        if not isinstance(token.get("_data"), str):
            raise ValueError("no _data")
    except (ValueError, TypeError):
        raise ConfigurationError("the token is no document with _data", next_step="copy it whole from strandline offsets history") from None
    return json_util.dumps(token, json_options=json_util.CANONICAL_JSON_OPTIONS)


def _token_of_version(ctx: JobContext, version: int) -> str:
    """The token that bronze remembered as of one of its versions."""
    bronze = bronze_table(ctx.settings.source.name)
    try:
        last = committed(ctx.tables, bronze, version=version) if version <= ctx.tables.version(bronze) else None
    except PySparkException:  # its files or its log are gone
        raise ConfigurationError(f"{bronze} has no version {version} any more", next_step="strandline offsets history") from None
    if last is None or last.resume_token is None:
        raise ConfigurationError(f"{bronze} held no offset at version {version}", next_step="strandline offsets history")
    return last.resume_token
