"""Parts of a MongoDB URI. No I/O."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Final
from urllib.parse import parse_qsl

from strandline.errors import ConfigurationError, install_command

_PACKAGES: Final = {"MONGODB-AWS": ("aws", ("pymongo_auth_aws",)), "GSSAPI": ("kerberos", ("kerberos", "winkerberos"))}
"""Mechanism: Strandline's extra, and modules of which the driver needs one."""
_TLS_FILES: Final = ("tlscafile", "tlscertificatekeyfile", "tlscrlfile")
_TLS: Final = ("tls", "ssl")
_UNVERIFIED: Final = ("tlsinsecure", "tlsallowinvalidcertificates", "tlsallowinvalidhostnames")


def hosts_of(uri: str) -> str:
    """Return the hosts of a valid URI, without its credentials."""
    authority = re.split("[/?]", uri.partition("://")[2])[0]
    return authority.rpartition("@")[2]


def tls_files(uri: str) -> list[str]:
    """Return the paths of certificate files in *uri*. Every machine that opens a client needs these files."""
    return [value for name, value in _options(uri) if name.lower() in _TLS_FILES]


def uses_tls(uri: str) -> bool:
    """Return True if a connection by *uri* is encrypted. With ``mongodb+srv`` it is, unless the URI says otherwise."""
    said = [value for name, value in _options(uri) if name.lower() in _TLS]
    return said[-1].lower() == "true" if said else uri.startswith("mongodb+srv://")


def verifies_tls(uri: str) -> bool:
    """Return False if *uri* turns off a check of the server's certificate."""
    return not any(name.lower() in _UNVERIFIED and value.lower() == "true" for name, value in _options(uri))


def client_certificate(uri: str) -> str | None:
    """Return the path of the client's certificate; None if the URI names none."""
    return next((value for name, value in _options(uri) if name.lower() == "tlscertificatekeyfile"), None)


def check_mechanism(uri: str) -> None:
    """Check that the package of the URI's ``authMechanism`` is installed.

    Raises:
        ConfigurationError: It is not. The driver would say so only when it connects.
    """
    mechanism = next((value for name, value in _options(uri) if name.lower() == "authmechanism"), "").upper()
    extra, modules = _PACKAGES.get(mechanism, ("", ()))
    if modules and not any(map(find_spec, modules)):
        raise ConfigurationError(
            f"authMechanism {mechanism} needs the Python package {modules[0]}, which is not installed",
            next_step=install_command(extra),
        )


def _options(uri: str) -> list[tuple[str, str]]:
    return parse_qsl(uri.partition("?")[2].replace(";", "&"))
