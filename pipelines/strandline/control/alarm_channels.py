"""Channels of alarm messages: a webhook and e-mail. Each send is one attempt."""

from __future__ import annotations

import json
import smtplib
import ssl
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.message import EmailMessage
from typing import Any, Final, Literal, Protocol

_SECONDS: Final = 10.0


@dataclass(frozen=True)
class Message:
    """One message: a state has begun or ended."""

    source: str
    state: str
    phase: Literal["begins", "ends"]
    at: str
    """Time in ISO 8601, UTC."""
    reason: str
    """Why the state began. It holds no value of a document."""
    command: str
    """Command that shows more, or that helps."""
    wanted: str = "running"
    """State that an operator wants: running, paused, stopped."""
    process: str = ""
    """Process that sends the message: ``host:pid``."""

    @property
    def line(self) -> str:
        """Return the message as one line."""
        wanted = "" if self.wanted == "running" else f" (an operator wants it {self.wanted})"
        return f"strandline {self.source}: {self.state} {self.phase}: {self.reason}{wanted} → {self.command}"

    def document(self) -> dict[str, Any]:
        """Return the message for JSON. ``text`` is what chat services show."""
        return {"text": self.line, **vars(self)}


class AlarmChannel(Protocol):
    """I/O: sends one message. Raises OSError (SMTPException and URLError are such) if it was not accepted."""

    def send(self, message: Message) -> None: ...


@dataclass(frozen=True)
class Webhook:
    """POST of JSON. Any answer below 300 accepts it.

    Args:
        url: May hold a secret, as chat services' URLs do. It never reaches the log.
    """

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def send(self, message: Message) -> None:
        body = json.dumps(message.document()).encode()
        headers = {"Content-Type": "application/json", "User-Agent": "strandline", **self.headers}
        request = urllib.request.Request(self.url, body, headers, method="POST")
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            answer.read(1)


@dataclass(frozen=True)
class Mail:
    """E-mail through an SMTP server.

    Args:
        security: ``starttls``, ``tls`` from the first byte, or ``none``.
    """

    host: str
    port: int
    sender: str
    recipients: tuple[str, ...]
    security: Literal["starttls", "tls", "none"] = "starttls"
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def send(self, message: Message) -> None:
        mail = EmailMessage()
        mail["Subject"] = f"[strandline] {message.source}: {message.state} {message.phase}"
        mail["From"], mail["To"] = self.sender, ", ".join(self.recipients)
        mail.set_content(
            f"{message.reason}\n\nsince or until: {message.at}\nsee: {message.command}\n"
            f"wanted: {message.wanted}\nprocess: {message.process}\n"
        )
        with self._connected() as server:
            if self.user is not None:
                server.login(self.user, self.password or "")
            server.send_message(mail)

    def _connected(self) -> smtplib.SMTP:
        context = ssl.create_default_context()
        if self.security == "tls":
            return smtplib.SMTP_SSL(self.host, self.port, timeout=_SECONDS, context=context)
        server = smtplib.SMTP(self.host, self.port, timeout=_SECONDS)
        if self.security == "starttls":
            server.starttls(context=context)
        return server
