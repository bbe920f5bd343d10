"""Errors of a client that cannot be created, each as one line. They never quote the URI."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime

from strandline.errors import ConfigurationError, StrandlineError
from strandline.source.certificate import expiry
from strandline.source.errors import CredentialsRefused, NoAnswer, TlsFileMissing
from strandline.source.uri import (
    check_mechanism,
    check_options,
    check_user,
    client_certificate,
    options_error,
    options_in,
)

_NO_TLS = ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING", "RECORD_LAYER_FAILURE")
"""Reasons of OpenSSL for an answer that is not TLS, or for none."""


def check_uri(uri: str) -> None:
    """Check what the driver does not, or not in time: encoding, options, the mechanism's package, the certificate.

    I/O: reads the certificate's file.

    Raises:
        ConfigurationError: User or password is not encoded, an option has a wrong value, or a package is missing.
        CredentialsRefused: The certificate has expired. A server would close the connection without a reason.
    """
    check_user(uri)
    check_options(uri)
    check_mechanism(uri)
    file = client_certificate(uri)
    until = None if file is None else expiry(file)
    if until is not None and until < datetime.now(UTC):
        raise tls_error(f"the client's certificate expired at {until.isoformat()}: {file}")


def opening_error(uri: str, error: Exception) -> StrandlineError:
    """Return the error for a client that the driver could not create from *uri*."""
    if isinstance(error, OSError):  # includes ssl.SSLError
        why = f"{error.strerror}: {error.filename}" if error.filename else type(error).__name__
        return tls_error(why, TlsFileMissing if isinstance(error, FileNotFoundError) else CredentialsRefused)
    if isinstance(error.__cause__ or error.__context__, ssl.SSLError):
        return tls_error("certificate and key do not match, or the key's password is wrong")
    if type(error.__cause__).__module__.partition(".")[0] == "dns":  # the driver has asked for SRV and TXT records
        return NoAnswer(
            f"the DNS records of the MongoDB URI were not found ({type(error.__cause__).__name__})",
            next_step="check the host name in STRANDLINE_SOURCE__URI and this machine's DNS servers",
        )
    if names := options_in(uri, str(error)):
        return options_error(names)
    return ConfigurationError(
        f"the MongoDB URI cannot be read ({type(error).__name__})",
        next_step="check STRANDLINE_SOURCE__URI: mongodb://user:password@host:27017/",
    )


def tls_error(why: str, kind: type[CredentialsRefused] = CredentialsRefused) -> CredentialsRefused:
    """Return the error for a TLS connection that cannot be made."""
    step = "check tlsCAFile and tlsCertificateKeyFile in STRANDLINE_SOURCE__URI"
    return kind(
        f"no TLS connection to MongoDB can be made ({why})",
        next_step="check that the server speaks TLS at this port, or remove tls=true" if why in _NO_TLS else step,
    )
