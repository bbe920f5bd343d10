"""The process of a capture: `status`, the API, metrics and a second capture name it, running or ended."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from lakehouse import settings_for
from processes import environment, wait_until
from pymongo.database import Database

from strandline.commands.offsets import for_people
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.lake_context import DeltaRsContext, open_capture_without_spark
from strandline.jobs.offsets.life_cycle import last_offset, required_offset, set_desired_state
from strandline.jobs.offsets.show_offset import process_of, show_offset
from strandline.jobs.operations.metrics import exposition
from strandline.web.calls import Asked, Calls

Db = Database[dict[str, Any]]


@pytest.fixture
def ctx(mongo_uri: str, database: Db, tmp_path: Path) -> DeltaRsContext:
    database.orders.insert_one({"_id": 1})
    ctx = open_capture_without_spark(settings_for(mongo_uri, database.name, tmp_path / "lake", engine="native"))
    assert ctx is not None
    return ctx


def program(ctx: DeltaRsContext, uri: str, *arguments: str) -> subprocess.Popen[str]:
    variables = {
        "STRANDLINE_LAKE__ROOT": str(ctx.settings.lake.root),
        "STRANDLINE_CAPTURE__ENGINE": "native",
        "STRANDLINE_CAPTURE__HEARTBEAT_INTERVAL_MS": "100",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "strandline", *arguments],
        env=environment(uri, str(ctx.settings.capture.target)) | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_running_capture_is_named_by_status_and_by_a_second_one(
    ctx: DeltaRsContext, mongo_uri: str, caplog: pytest.LogCaptureFixture
) -> None:
    running = program(ctx, mongo_uri, "capture")
    try:
        wait_until(lambda: last_offset(ctx), "no batch")
        shown = show_offset(ctx)
        assert shown.process is not None
        assert (shown.state, shown.process.alive) == ("running", True)
        assert f"alive: process {running.pid} on " in for_people_of(ctx)["process"]
        (task,) = Calls(ctx.settings).status(Asked({}))[1]["tasks"]
        assert (task["state"], task["worker_id"].endswith(f":{running.pid}")) == ("RUNNING", True)
        running.send_signal(signal.SIGSTOP)
        with caplog.at_level(logging.WARNING, "strandline.capture"):
            run_capture(ctx, once=True)  # the second capture
        running.send_signal(signal.SIGCONT)
        assert f"another capture (alive: process {running.pid} on " in caplog.text
        assert running.wait(60) == 6
        assert running.stderr is not None
        complaint = running.stderr.read()
        assert f" of source test (process {os.getpid()} on " in complaint
        assert "strandline status shows the writer" in complaint
    finally:
        running.kill()
        running.communicate()


def test_an_ended_capture_is_shown_beside_the_state_that_an_operator_set(ctx: DeltaRsContext, mongo_uri: str) -> None:
    ended = program(ctx, mongo_uri, "capture", "--once")
    _, complaint = ended.communicate(timeout=120)
    assert ended.returncode == 0, complaint
    shown, now = for_people_of(ctx), datetime.now(UTC)
    assert (shown["wanted_state"], shown["process"].split(" on ")[0]) == ("running", f"ended: process {ended.pid}")
    later = process_of(ctx, required_offset(ctx), now + timedelta(minutes=17))
    assert later is not None
    assert (later.alive, "last commit 17 min" in later.summary) == (False, True)
    status = Calls(ctx.settings).status(Asked({}))[1]
    assert (status["connector"]["state"], status["tasks"][0]["state"]) == ("RUNNING", "UNASSIGNED")
    assert (status["process"]["alive"], status["process"]["process"]["pid"]) == (False, ended.pid)
    (sample,) = (line for line in exposition(ctx).splitlines() if line.startswith("strandline_capture_alive"))
    assert f':{ended.pid}",source="test"}} 0.0' in sample
    set_desired_state(ctx, "paused", by="ana", why=None)
    asked = program(ctx, mongo_uri, "status", "--json")
    offset = json.loads(asked.communicate(timeout=60)[0])["offset"]
    assert (offset["state"], offset["process"]["alive"]) == ("paused", False)


def for_people_of(ctx: DeltaRsContext) -> dict[str, Any]:
    return for_people(asdict(show_offset(ctx)))
