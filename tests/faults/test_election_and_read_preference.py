"""An election moves the role of a member: the change stream moves with the read preference."""

from __future__ import annotations

import logging
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from lakehouse import settings_for
from processes import wait_until
from pymongo import MongoClient

from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.lake_context import open_capture_without_spark
from strandline.source.mongod import EmbeddedMongod


def streams(member: MongoClient[dict[str, Any]]) -> int:
    """Number of open change streams of a capture on one member."""
    operations = member.admin.aggregate([{"$currentOp": {"idleCursors": True, "allUsers": True}}])
    return sum("$changeStream" in str(each) and each.get("appName") == "strandline" for each in operations)


def direct(opened: ExitStack, port: int) -> MongoClient[dict[str, Any]]:
    return opened.enter_context(MongoClient[dict[str, Any]](f"mongodb://127.0.0.1:{port}/?directConnection=true"))


@pytest.mark.parametrize("preference", ["secondary", "primary"])
def test_a_stream_is_opened_again_by_its_read_preference_after_an_election(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, preference: str
) -> None:
    caplog.set_level(logging.INFO, "strandline")
    with (
        EmbeddedMongod(members=2) as server,
        MongoClient[dict[str, Any]](server.uri) as mongo,
        ExitStack() as opened,
    ):
        mongo.shop.a.insert_one({"_id": 0})
        uri = f"{server.uri}&readPreference={preference}&heartbeatFrequencyMS=500"
        ctx = open_capture_without_spark(settings_for(uri, "shop", tmp_path, engine="native"))
        assert ctx is not None
        landed, stop = list[int](), threading.Event()

        def report(what: str, count: int) -> None:
            landed.extend([count] if what == "events" else [])

        members = [direct(opened, port) for port in server.ports]
        capturing = threading.Thread(target=run_capture, args=(ctx,), kwargs={"stop": stop, "report": report})
        capturing.start()
        try:
            primary = next(
                number for number, each in enumerate(members) if each.admin.command("hello")["isWritablePrimary"]
            )
            at_first = primary if preference == "primary" else 1 - primary
            wait_until(lambda: streams(members[at_first]), "the stream is open where the preference says", seconds=60)
            mongo.shop.a.insert_one({"_id": 1})
            wait_until(lambda: sum(landed) == 1, seconds=60)
            members[primary].admin.command("replSetStepDown", 60, secondaryCatchUpPeriodSecs=30)
            wait_until(lambda: streams(members[1 - at_first]), "the stream has moved", seconds=60)
            assert not streams(members[at_first])
            mongo.shop.a.insert_one({"_id": 2})
            wait_until(lambda: sum(landed) == 2, seconds=60)
        finally:
            stop.set()
            capturing.join()
        kind = "primary" if preference == "secondary" else "secondary"
        (told,) = [text for text in caplog.messages if "is opened again" in text]
        assert f"127.0.0.1:{server.ports[at_first]}, which is a {kind} now" in told
        assert told.endswith(f"readPreference={preference}")
