"""The process that captures a source: who, since when, its last commit, and if it runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner
from ui_lake import read, watched

from strandline.bronze.capture_process import CaptureProcess, WriterProcess, runs_here, writer_id
from strandline.bronze.writer import BronzeWriter
from strandline.cli import app
from strandline.jobs.lake_context import open_capture_without_spark
from strandline.model.timestamps import clock_us
from strandline.settings.configuration import Settings
from strandline.web.server import Access, application

BEGAN = datetime(2026, 1, 31, 12, tzinfo=UTC)
ELSEWHERE = "db1/4711/20260131T120000.000000Z/0123456789ab"


def process_at(seconds: int, writer: str = ELSEWHERE, known: bool | None = None) -> CaptureProcess:
    """The process *seconds* after its last commit, which was five minutes after its start."""
    beat = BEGAN + timedelta(minutes=5)
    return CaptureProcess.at(beat + timedelta(seconds=seconds), writer, beat, 180.0, lambda _: known)


@pytest.mark.parametrize(
    ("seconds", "known", "summary"),
    [
        (12, None, "alive: process 4711 on db1, since 2026-01-31T12:00:00+00:00, last commit 12 s ago"),
        (180, None, "alive: process 4711 on db1, since 2026-01-31T12:00:00+00:00, last commit 3 min 0 s ago"),
        (181, None, "silent: process 4711 on db1, since 2026-01-31T12:00:00+00:00, last commit 3 min 1 s ago"),
        (1020, False, "ended: process 4711 on db1, since 2026-01-31T12:00:00+00:00, last commit 17 min 0 s ago"),
        (5, False, "ended: process 4711 on db1, since 2026-01-31T12:00:00+00:00, last commit 5 s ago"),
        (1020, True, "alive: process 4711 on db1, since 2026-01-31T12:00:00+00:00, last commit 17 min 0 s ago"),
        (-30, None, "alive: process 4711 on db1, since 2026-01-31T12:00:00+00:00, last commit 0 s ago"),
    ],
)
def test_a_process_is_alive_silent_or_ended(seconds: int, known: bool | None, summary: str) -> None:
    process = process_at(seconds, known=known)
    assert (process.summary, process.alive) == (summary, summary.startswith("alive"))
    assert process.worker == "db1:4711"


def test_a_stream_of_spark_is_judged_by_its_last_commit() -> None:
    assert process_at(10, "spark").summary == "alive: writer spark, last commit 10 s ago"
    assert process_at(1_000, "spark").summary == "silent: writer spark, last commit 16 min 40 s ago"


@pytest.mark.parametrize("writer", ["", "0f" * 16, "a/b/c/d", "db1/7/yesterday/0123", "db1/7/20260131T120000.000000Z"])
def test_a_writer_id_of_another_form_has_no_process(writer: str) -> None:
    assert WriterProcess.of(writer) is None
    assert process_at(10, writer).worker == writer


def test_a_writer_of_this_process_is_judged_by_its_last_commit() -> None:
    process = WriterProcess.of(writer_id())
    assert process is not None
    assert (process.pid, process.is_here, runs_here(process)) == (os.getpid(), True, None)
    assert writer_id() != writer_id()


def test_a_process_that_ended_or_whose_number_was_given_again_has_ended() -> None:
    code = "from strandline.bronze.capture_process import writer_id; print(writer_id())"
    writer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    ended = WriterProcess.of(writer)
    assert ended is not None
    assert (ended.is_here, runs_here(ended)) == (False, False)
    host, _, _, machine = writer.split("/")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as later:
        runs = [WriterProcess.of(f"{host}/{later.pid}/{year}0101T000000.000000Z/{machine}") for year in (2020, 2999)]
        assert [runs_here(each) for each in runs if each] == [False, True], "it began after the writer of 2020"
        later.communicate(b"\n")


def test_another_machine_knows_its_own_processes() -> None:
    process = WriterProcess.of(ELSEWHERE)
    assert process is not None
    assert runs_here(process) is None


@pytest.mark.parametrize(
    ("seconds", "word", "task"),
    [(10, "alive", "RUNNING"), (1_020, "silent", "UNASSIGNED")],
    ids=["young", "17 minutes"],
)
def test_every_surface_shows_the_wanted_state_and_the_process(
    tmp_path: Path, seconds: int, word: str, task: str
) -> None:
    options = ["--set", f"lake.root={tmp_path}", "--set", "source.name=test"]
    settings = Settings.model_validate({"source": {"name": "test"}, "lake": {"root": str(tmp_path)}})
    commit_batch(settings, seconds)
    shown = CliRunner().invoke(app, ["status", *options]).stdout
    assert f"wanted state  running\n         process  {word}: process 4711 on db1, since 2026-01-31T12:00:00" in shown
    offset = json.loads(CliRunner().invoke(app, ["status", "--json", *options]).stdout)["offset"]
    assert (offset["state"], offset["process"]["alive"]) == ("running", word == "alive")
    samples = CliRunner().invoke(app, ["metrics", *options]).stdout
    assert f'strandline_capture_alive{{process="db1:4711",source="test"}} {float(word == "alive")}' in samples
    access = Access.of("127.0.0.1", 8081, api=True, known_token=None)
    headers = {"Authorization": f"Bearer {access.token}", "Accept": "text/html"}
    with TestClient(application(watched(settings), access, []), base_url="http://localhost", headers=headers) as client:
        page = read(client, "/")
        status = client.get("/connectors/test/status").json()
    assert f"{word}: process 4711 on db1" in page
    assert (status["connector"]["state"], status["tasks"][0]["state"]) == ("RUNNING", task)
    assert status["tasks"][0]["worker_id"] == "db1:4711"


def commit_batch(settings: Settings, seconds: int) -> None:
    """Commit a batch of a writer elsewhere, whose clock showed *seconds* ago."""
    ctx = open_capture_without_spark(settings)
    assert ctx is not None
    opened = ctx.for_capture(patient=False)
    writer = BronzeWriter(
        opened.tables, "test", ELSEWHERE, lambda: clock_us() - seconds * 1_000_000, open_engine=opened.open_engine
    )
    writer.open("id", "deployment")
    writer.commit([], batch=1, resume_token='{"_data": "826B0A8098000000052B0229296E04"}', snapshot_id=None)
    writer.close()
