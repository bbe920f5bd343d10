"""Parts of a MongoDB URI. Pure."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl

_TLS_FILES: Final = ("tlscafile", "tlscertificatekeyfile", "tlscrlfile")


def hosts_of(uri: str) -> str:
    """Return the hosts of a valid URI, without its credentials."""
    authority = re.split("[/?]", uri.partition("://")[2])[0]
    return authority.rpartition("@")[2]


def tls_files(uri: str) -> list[str]:
    """Return the paths of certificate files in *uri*. Every machine that opens a client needs these files."""
    options = parse_qsl(uri.partition("?")[2].replace(";", "&"))
    return [value for name, value in options if name.lower() in _TLS_FILES]
