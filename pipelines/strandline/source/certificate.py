"""End of a certificate's time, read from its file. A server that refuses an expired certificate gives no reason."""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_VERSION_TAG, _UTC_TIME = 0xA0, 0x17


def expiry(file: str) -> datetime | None:
    """Return the time after which the first certificate in a PEM file is invalid.

    None: the file cannot be read, or holds no certificate. I/O: reads the file.
    """
    try:
        match = _CERTIFICATE.search(Path(file).read_text(encoding="ascii"))
        return None if match is None else _not_after(ssl.PEM_cert_to_DER_cert(match[0]))
    except (OSError, ValueError, IndexError):  # ValueError includes UnicodeDecodeError
        return None


def _not_after(certificate: bytes) -> datetime:
    """Return ``validity.notAfter`` (RFC 5280, section 4.1)."""
    to_be_signed = _content(_content(certificate))
    fields = _elements(to_be_signed)
    if fields[0][0] == _VERSION_TAG:  # absent in version 1
        fields = fields[1:]
    validity = fields[3][1]  # serialNumber, signature, issuer, validity
    tag, text = _elements(validity)[1]
    digits = text.decode("ascii")
    if tag == _UTC_TIME:
        digits = ("20" if int(digits[:2]) < 50 else "19") + digits
    return datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _content(der: bytes) -> bytes:
    return _elements(der)[0][1]


def _elements(der: bytes) -> list[tuple[int, bytes]]:
    """Return tag and content of each element in a row of DER elements."""
    elements, at = [], 0
    while at < len(der):
        tag, length, at = der[at], der[at + 1], at + 2
        if length & 0x80:
            size = length & 0x7F
            length, at = int.from_bytes(der[at : at + size], "big"), at + size
        elements.append((tag, der[at : at + length]))
        at += length
    return elements
