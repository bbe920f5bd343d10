"""Alarms: one message when a state begins, one when it ends; repeated until it is accepted, and never in the way."""

from __future__ import annotations

import json
import os
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from pydantic import ValidationError

from strandline.control.alarm_channels import Mail, Message, Webhook
from strandline.control.alarms import AlarmLimits, Alarms, states_of
from strandline.io.telemetry.live_state import CaptureState, SnapshotNow
from strandline.settings.notifications import NotificationSettings

MESSAGE = Message("shop", "lag", "begins", "2026-01-01T00:00:00+00:00", "bronze is 400 s behind", "strandline status")


@contextmanager
def running(server: socketserver.BaseServer) -> Iterator[None]:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


class Hook(HTTPServer):
    """A web server that refuses the first *refusals* messages."""

    def __init__(self, refusals: int = 0, delay: float = 0) -> None:
        self.refusals, self.delay, self.got = refusals, delay, list[dict[str, str]]()
        super().__init__(("127.0.0.1", 0), _Posted)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook/s3cret"


class _Posted(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(self.server.delay)
        self.server.refusals -= 1
        if self.server.refusals >= 0:
            self.send_error(503)
            return
        self.server.got.append(json.loads(body))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


class Smtp(socketserver.ThreadingTCPServer):
    """An SMTP server (RFC 5321) that keeps what it gets."""

    def __init__(self) -> None:
        self.mails = list[str]()
        super().__init__(("127.0.0.1", 0), _Session)


class _Session(socketserver.StreamRequestHandler):
    server: Smtp

    def handle(self) -> None:
        self.wfile.write(b"220 test\r\n")
        for line in self.rfile:
            verb = line[:4].upper()
            if verb == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                lines = iter(lambda: self.rfile.readline(), b".\r\n")
                self.server.mails.append(b"".join(lines).decode())
            self.wfile.write(b"221 bye\r\n" if verb == b"QUIT" else b"250 ok\r\n")
            if verb == b"QUIT":
                return


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_state_is_told_once_when_it_begins_and_once_when_it_ends() -> None:
    states: dict[str, str] = {}
    hook, smtp = Hook(), Smtp()
    with running(hook), running(smtp):
        mail = Mail("127.0.0.1", smtp.server_address[1], "strandline@a.example", ("ops@a.example",), "none")
        alarms = Alarms("shop", [Webhook(hook.url), mail], lambda: dict(states), interval_seconds=0.02).start()
        states["lag"] = "bronze is 400 s behind"
        until(lambda: len(hook.got) == 1)
        states["lag"] = "bronze is 500 s behind"
        time.sleep(0.1)
        states.clear()
        until(lambda: len(hook.got) == 2 and len(smtp.mails) == 2)
        alarms.close("the lake is away")
    told = [(each["state"], each["phase"]) for each in hook.got]
    assert told == [("lag", "begins"), ("lag", "ends"), ("failure", "begins")]
    assert hook.got[0]["text"] == "strandline shop: lag begins: bronze is 400 s behind → strandline status"
    assert (hook.got[0]["source"], hook.got[0]["wanted"]) == ("shop", "running")
    assert hook.got[0]["process"].endswith(f":{os.getpid()}")
    subjects = [line for mail in smtp.mails for line in mail.splitlines() if line.startswith("Subject:")]
    assert subjects == [f"Subject: [strandline] shop: {what}" for what in ("lag begins", "lag ends", "failure begins")]
    assert "To: ops@a.example" in smtp.mails[0]
    assert "bronze is 400 s behind" in smtp.mails[0]


def test_a_message_about_a_paused_source_says_that_it_is_paused() -> None:
    message = replace(MESSAGE, wanted="paused", process="db1:7")
    assert "bronze is 400 s behind (an operator wants it paused) → strandline status" in message.line
    assert (message.document()["wanted"], message.document()["process"]) == ("paused", "db1:7")


def test_a_message_is_repeated_until_it_is_accepted_and_its_url_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    hook = Hook(refusals=2)
    with running(hook):
        alarms = Alarms("shop", [Webhook(hook.url)], lambda: {"lake": "full"}, 0.02, delay_seconds=0.01).start()
        until(lambda: bool(hook.got))
        alarms.close()
    assert len(caplog.messages) == 2
    assert "s3cret" not in caplog.text + repr(alarms)


def test_a_channel_that_does_not_answer_delays_no_other_and_no_end() -> None:
    slow, quick = Hook(delay=5), Hook()
    with running(quick):
        threading.Thread(target=slow.serve_forever, daemon=True).start()
        alarms = Alarms("shop", [Webhook(slow.url), Webhook(quick.url)], lambda: {"gold": "no"}, 0.02).start()
        until(lambda: bool(quick.got))
        began = time.monotonic()
        alarms.close(seconds=0.2)
        assert time.monotonic() - began < 2
    slow.server_close()


def test_the_states_follow_from_the_capture() -> None:
    stalled = SnapshotNow("s", "initial", "running", 90.0, 0.0, 2, 1, 9, 3, {}, None, 50.0)
    capture = CaptureState(complete_until=1.0, disconnected_since=10.0, snapshot=lambda: stalled)
    capture.failing["silver"] = "a column is missing"
    found = states_of(capture, AlarmLimits(300, 60, 40), now=100.0)
    assert set(found) == {"lag", "source", "snapshot", "silver"}
    assert found["source"] == "the change stream has been down for 90 s"
    assert found["snapshot"] == "no chunk was committed for 50 s (3 of 9)"
    assert states_of(capture, AlarmLimits(None, None, None), now=100.0) == {"silver": "a column is missing"}
    assert states_of(CaptureState(), AlarmLimits(), now=100.0) == {}


def test_a_snapshot_that_is_held_back_is_not_stalled() -> None:
    """Its rate limit, or a loaded source, delays the next chunk."""
    held = SnapshotNow("s", "initial", "running", 9_000.0, 0.0, 1, 1, 9, 3, {}, None, 1_000.0, held_at=9_999.0)
    assert states_of(CaptureState(snapshot=lambda: held), AlarmLimits(), now=10_000.0) == {}
    assert set(states_of(CaptureState(snapshot=lambda: held), AlarmLimits(), now=12_000.0)) == {"snapshot"}


def test_wrong_settings_are_told() -> None:
    with pytest.raises(ValidationError, match="email_to needs email_from and smtp_host"):
        NotificationSettings(email_to=("ops@a.example",))
    with pytest.raises(ValidationError, match="password would be readable"):
        NotificationSettings(smtp_user="u", smtp_security="none")
    with pytest.raises(ValidationError, match="http:// or https://"):
        NotificationSettings(webhook_url="file:///etc/passwd")
    settings = NotificationSettings(email_to="a@b.example, c@d.example", email_from="s@b.example", smtp_host="mail")
    assert settings.email_to == ("a@b.example", "c@d.example")
    assert MESSAGE.line.startswith("strandline shop: lag begins")
