"""Messages to systemd, and `/livez`: both say whether the loop of the capture runs."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.io.telemetry.live_state import HUNG_SECONDS, CaptureState, SnapshotNow
from strandline.io.telemetry.metrics_server import serve
from strandline.io.telemetry.service_manager import ServiceManager


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket of a service manager."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.setblocking(False)
        yield receiver


def sent(receiver: socket.socket) -> list[str]:
    """Lines that have arrived."""
    lines = list[str]()
    while True:
        try:
            lines += receiver.recv(4096).decode().split("\n")
        except BlockingIOError:
            return lines


def test_it_is_told_of_start_state_and_end(manager: socket.socket, tmp_path: Path) -> None:
    told, capture = ServiceManager(str(tmp_path / "notify")), CaptureState(is_bronze_open=True)
    told.beat(capture)
    assert sent(manager) == ["STATUS=the change stream is not open"]
    capture.connected = True
    told.beat(capture)
    told.beat(capture)
    assert sent(manager) == ["READY=1", "STATUS=capturing"]
    capture.connected = False
    told.beat(capture)
    told.stopping()
    assert sent(manager) == ["STOPPING=1", "STATUS=ends after the batch in progress"], "no state twice within seconds"


def test_the_watchdog_gets_a_message_from_beats_only(manager: socket.socket, tmp_path: Path) -> None:
    told, capture = ServiceManager(str(tmp_path / "notify"), watchdog_seconds=0.2), CaptureState(connected=True)
    capture.on_beat = told.beat
    capture.wait(threading.Event(), 0)
    assert "WATCHDOG=1" in sent(manager)
    capture.beat()
    assert "WATCHDOG=1" not in sent(manager), "half of the interval is not over"
    time.sleep(0.25)
    assert sent(manager) == []
    capture.beat()
    assert sent(manager) == ["WATCHDOG=1"]


def test_a_wait_of_the_loop_has_beats_and_a_stop_ends_it() -> None:
    beats, stop = list[float](), threading.Event()
    capture = CaptureState(on_beat=lambda _: beats.append(time.monotonic()))
    assert not capture.wait(stop, 1.1)
    assert len(beats) == 2
    stop.set()
    assert capture.wait(stop, 3600)


def test_a_step_without_a_time_limit_does_not_count_as_a_hang() -> None:
    capture = CaptureState()
    with capture.without_limit():
        assert (capture.beat_at, capture.not_live()) == (None, [])
    assert capture.beat_at is not None


def test_the_environment_names_the_service_manager(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    of, capture = ServiceManager.from_environment, CaptureState(connected=True)
    assert of({}) is None
    assert of({"NOTIFY_SOCKET": "vsock:2:1234"}) is None
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as abstract:
        name = f"strandline-{os.getpid()}"
        abstract.bind(f"\0{name}")
        abstract.setblocking(False)
        for watchdog, expected in (
            ({}, False),
            ({"WATCHDOG_USEC": "1000"}, True),
            ({"WATCHDOG_USEC": "0"}, False),
            ({"WATCHDOG_USEC": "1000", "WATCHDOG_PID": str(os.getpid())}, True),
            ({"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}, False),
        ):
            found = of({"NOTIFY_SOCKET": f"@{name}", **watchdog})
            assert found is not None
            found.beat(capture)
            assert ("WATCHDOG=1" in sent(abstract)) is expected
    with caplog.at_level(logging.WARNING):
        gone = ServiceManager(str(tmp_path / "nobody"))
        gone.beat(capture)
        gone.beat(capture)
        assert caplog.messages == ["the service manager does not accept messages: No such file or directory"]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
            receiver.bind(str(tmp_path / "nobody"))
            receiver.setblocking(False)
            gone.beat(capture)
            assert sent(receiver)[:2] == ["READY=1", "STATUS=bronze is not open yet"], (
                "what was not accepted is sent again"
            )


def test_the_state_is_one_line_for_systemd() -> None:
    reading = SnapshotNow(
        "s", "initial", "running", 9.0, 0.0, 1, 1, 9, 3, {}, None, None, slowed_by={"tickets": "0 of 128 are free"}
    )
    capture = CaptureState(is_bronze_open=True, connected=True, complete_until=time.time(), snapshot=lambda: reading)
    capture.failing["gold"] = "no"
    expected = "capturing, 0 s behind the source; gold fails; snapshot running: 3 of 9 chunks, slowed by tickets"
    assert capture.summary() == expected


def test_a_loop_that_hangs_is_not_live() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    capture = CaptureState()
    serve(port, "127.0.0.1", {"source": "test"}, capture)

    def live() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez") as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    assert live() == (200, "ok\n"), "the loop does not run yet"
    capture.beat()
    assert live() == (200, "ok\n")
    capture.beat_at = time.monotonic() - HUNG_SECONDS - 1
    assert live() == (503, "the loop of the capture has hung for 601 s\n")
    capture.ended()
    assert live() == (200, "ok\n"), "silver and gold of run --once"
