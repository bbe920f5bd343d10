"""Credentials that are files: a URI, a password, certificates. A file may be replaced while a capture runs."""

from __future__ import annotations

import re
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import quote_plus

from strandline.errors import ConfigurationError, StrandlineError
from strandline.source.errors import CredentialsRefused, ServerChanged, TlsFileMissing
from strandline.source.uri import tls_files

ROTATION_SECONDS: Final = 300.0
"""Maximum time between a refusal by MongoDB and the new content of the file."""
_POLL_SECONDS: Final = 1.0
_USER: Final = re.compile(r"(mongodb(?:\+srv)?://[^/?@:]+)(:[^/?@]*)?@")


class CredentialsReplaced(StrandlineError):
    """A file with credentials has another content than when the connections were opened. Open new connections."""


@dataclass(frozen=True)
class Credentials:
    """Connection string, or the files from which it is made.

    Args:
        uri: Connection string. None: *uri_file* holds it.
        uri_file: File that holds the connection string.
        password_file: File that holds the password of the user in the connection string.
    """

    uri: str | None = field(default=None, repr=False)
    uri_file: str | None = None
    password_file: str | None = None

    def read(self) -> str:
        """Return the complete connection string. I/O: reads the files.

        Raises:
            ConfigurationError: A file cannot be read, or the URI names no user to whom the password belongs.
        """
        uri = self.uri if self.uri_file is None else _content("source.uri_file", self.uri_file).strip()
        if self.password_file is None:
            return uri or ""
        password = _content("source.password_file", self.password_file).rstrip("\r\n")
        user = _USER.match(uri or "")
        if user is None or user[2]:
            raise ConfigurationError(
                "source.password_file is set, and the MongoDB URI "
                + ("holds a password, too" if user else "names no user"),
                next_step="write the URI as mongodb://user@host:27017/, without a password",
            )
        return f"{user[1]}:{quote_plus(password)}@{(uri or '')[user.end() :]}"

    @property
    def in_files(self) -> bool:
        """Return True if the URI, the password or a certificate is in a file."""
        return self.uri_file is not None or self.password_file is not None or bool(tls_files(self.uri or ""))

    @property
    def has_tls_files(self) -> bool:
        """Return True if this machine has every certificate file that the URI names. I/O: looks for them.

        False: one is missing, or the URI cannot be read, as in the middle of a replacement.
        """
        with suppress(ConfigurationError):
            return all(Path(name).exists() for name in tls_files(self.read()))
        return False

    def fingerprint(self) -> str:
        """Return a hash of the URI and of the certificate files that it names. I/O: reads all of them."""
        uri = self.read()
        digest = sha256(uri.encode())
        for name in tls_files(uri):
            with suppress(OSError):  # its content is missing now; a connection attempt says so
                digest.update(Path(name).read_bytes())
        return digest.hexdigest()


def _content(setting: str, file: str) -> str:
    try:
        content = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{setting} cannot be read: {file} ({type(error).__name__})",
            next_step="check the path and who may read the file",
        ) from None
    if not content.strip():
        raise ConfigurationError(f"{setting} is empty: {file}", next_step="write the credentials into the file")
    return content


@dataclass
class ConnectionMonitor:
    """Notices that a run must open its connections again: credentials were replaced, or the server is another version.

    Args:
        credentials: As the run's connections use them.
        wait_seconds: Maximum wait for new credentials after a refusal.
    """

    credentials: Credentials
    wait_seconds: float = ROTATION_SECONDS
    connected: bool = False
    """True once MongoDB has accepted credentials in this run. If it never did, they are wrong: no wait."""
    has_opened_stream: bool = field(default=False, init=False)
    """Set once the server has opened the stream with these connections."""
    _opened_with: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._opened_with = self.credentials.fingerprint()

    @property
    def are_replaced(self) -> bool:
        """Return True if the credentials differ from those of the connections. I/O: reads the files.

        A file that cannot be read, as in the middle of its replacement, is no difference yet.
        """
        with suppress(ConfigurationError):
            return self.credentials.fingerprint() != self._opened_with
        return False

    def before_retry(self) -> None:
        """Raise CredentialsReplaced if another attempt needs new connections."""
        if self.are_replaced:
            raise CredentialsReplaced("MongoDB's credentials were replaced", next_step="strandline capture")

    def may_go_on(self, error: StrandlineError, stop: threading.Event) -> bool:
        """Return True if *error* may be cured by new connections.

        An older server that replaced the one of this run is asked for its version then.

        After a refusal this waits for new credentials: a password changes in MongoDB first and in the file later.
        """
        if isinstance(error, ServerChanged):
            return self.has_opened_stream
        until = time.monotonic() + (self.wait_seconds if self._ends_by_new_files(error) else 0.0)
        while not self.are_replaced:
            if time.monotonic() >= until or stop.wait(_POLL_SECONDS):
                return False
        return True

    def _ends_by_new_files(self, error: StrandlineError) -> bool:
        """Return True if *error* may end when somebody replaces the files of the credentials."""
        if isinstance(error, TlsFileMissing) and self.credentials.has_tls_files:  # a Spark worker lacks it
            return False
        return isinstance(error, CredentialsRefused) and self.connected and self.credentials.in_files
