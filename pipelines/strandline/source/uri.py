"""Parts of a MongoDB URI. No I/O. Nothing here quotes user, password or the value of an option."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Final
from urllib.parse import parse_qsl

from pymongo import common
from pymongo import errors as mongo

from strandline.errors import ConfigurationError, install_command

_PACKAGES: Final = {"MONGODB-AWS": ("aws", ("pymongo_auth_aws",)), "GSSAPI": ("kerberos", ("kerberos", "winkerberos"))}
"""Mechanism: Strandline's extra, and modules of which the driver needs one."""
_TLS_FILES: Final = ("tlscafile", "tlscertificatekeyfile", "tlscrlfile")
_TLS: Final = ("tls", "ssl")
_UNVERIFIED: Final = ("tlsinsecure", "tlsallowinvalidcertificates", "tlsallowinvalidhostnames")
_OF_THE_READER: Final = (
    "readconcernlevel",
    "timeoutms",
    "tz_aware",
    "datetime_conversion",
    "unicode_decode_error_handler",
)
"""Options that would change what is read, or end it. Strandline chooses read concern, time limits and types itself."""
_IN_PROGRAMS_ONLY: Final = ("server_api", "driver")
"""Options of the driver that no URI can hold."""
_KNOWN_OPTIONS: Final = frozenset(common.URI_OPTIONS_VALIDATOR_MAP) - frozenset(_IN_PROGRAMS_ONLY)
_IN_MESSAGES: Final = {
    "tags": "readpreferencetags",
    "j": "journal",
    "username": "authmechanism",
    "balancing": "loadbalanced",
}
"""Other names of options in the driver's messages."""
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_AUTHORITY: Final = re.compile(r"(?P<before>[^/?]*)(?P<path>/[^?]*)?(?:\?(?P<options>.*))?", re.DOTALL)


def hosts_of(uri: str) -> str:
    """Return the hosts of a valid URI, without its credentials."""
    authority = re.split("[/?]", uri.partition("://")[2])[0]
    return authority.rpartition("@")[2]


def tls_files(uri: str) -> list[str]:
    """Return the paths of certificate files in *uri*. Every machine that opens a client needs these files."""
    return [value for name, value in _options(uri) if name.lower() in _TLS_FILES]


def uses_tls(uri: str) -> bool:
    """Return True if a connection by *uri* is encrypted. With ``mongodb+srv`` it is, unless the URI says otherwise."""
    values = [value for name, value in _options(uri) if name.lower() in _TLS]
    return values[-1].lower() == "true" if values else uri.startswith("mongodb+srv://")


def verifies_tls(uri: str) -> bool:
    """Return False if *uri* turns off a check of the server's certificate."""
    return not any(name.lower() in _UNVERIFIED and value.lower() == "true" for name, value in _options(uri))


def replica_set_of(uri: str) -> str | None:
    """Return ``replicaSet`` of *uri*; None if it names none."""
    return next((value for name, value in _options(uri) if name.lower() == "replicaset"), None)


def for_one_server(uri: str, address: str, wait_ms: int) -> str:
    """Return the URI of one address, without a user: it tells what ``hello`` tells.

    Args:
        address: Host and port.
        wait_ms: Maximum wait for an answer, in ms.
    """
    parts = re.split("[&;]", uri.partition("?")[2])
    of_tls = [part for part in parts if part.lower().startswith("tls") and not part.lower().startswith("tls=")]
    options = ["directConnection=true", f"serverSelectionTimeoutMS={wait_ms}", f"connectTimeoutMS={wait_ms}", *of_tls]
    return f"mongodb://{address}/?{'&'.join([*options, f'tls={str(uses_tls(uri)).lower()}'])}"


def socket_timeout_ms(uri: str) -> int | None:
    """Return ``socketTimeoutMS`` of a URI whose options are valid; None if it names none."""
    return next((int(float(value)) for name, value in _options(uri) if name.lower() == "sockettimeoutms"), None)


def client_certificate(uri: str) -> str | None:
    """Return the path of the client's certificate; None if the URI names none."""
    return next((value for name, value in _options(uri) if name.lower() == "tlscertificatekeyfile"), None)


def check_user(uri: str) -> None:
    """Check that user and password are percent-encoded.

    Raises:
        ConfigurationError: They are not. Parts of the password would be taken for a host, a database or an option.
    """
    parts = _AUTHORITY.fullmatch(uri.partition("://")[2])
    before, path, options = (
        ("", "", "") if parts is None else (part or "" for part in parts.group("before", "path", "options"))
    )
    user = before.rpartition("@")[0]
    cut_off = "@" not in before and ("@" in path or "@" in options.partition("=")[0])
    if cut_off or "@" in user or user.count(":") > 1 or _BAD_ESCAPE.search(user):
        raise ConfigurationError(
            "user or password in the MongoDB URI holds a character that is not percent-encoded",
            next_step="write @ as %40, / as %2F, : as %3A, ? as %3F and % as %25; "
            "or set source.password_file, whose password needs no encoding",
        )


def check_options(uri: str) -> None:
    """Check the values of the options that the driver knows. The driver would pass over a wrong one.

    Raises:
        ConfigurationError: A value is wrong. The message names the options.
    """
    wrong = [name for name, value in _options(uri) if _is_passed_on(name) and not _is_valid(name, value)]
    if wrong:
        raise options_error(wrong)


def _is_valid(name: str, value: str) -> bool:
    try:
        common.validate(name, value)
    except (mongo.ConfigurationError, TypeError, ValueError):
        return False
    except OSError:  # a file that is missing is told when it is used
        return True
    return True


def options_error(names: Iterable[str]) -> ConfigurationError:
    """Return the error for options of the URI that have a wrong value, or contradict each other or the server."""
    return ConfigurationError(
        f"the MongoDB URI has options that cannot be used: {', '.join(dict.fromkeys(names))}",
        next_step="correct or remove them in STRANDLINE_SOURCE__URI",
    )


def options_in(uri: str, text: str) -> list[str]:
    """Return the options of *uri* that *text*, a message of the driver, names."""
    words = {_IN_MESSAGES.get(word, word) for word in re.findall(r"\w+", text.lower())}
    return [name for name, _ in _options(uri) if name.lower() in words]


def options_without_effect(uri: str) -> list[str]:
    """Return the names of the options that Strandline leaves out of *uri*: its own, and those that no driver knows."""
    return [name for name, _ in _options(uri) if not _is_passed_on(name)]


def for_the_driver(uri: str) -> str:
    """Return *uri* without the options that have no effect."""
    before, _, options = uri.partition("?")
    parts = [part for part in re.split("[&;]", options) if _is_passed_on(part.partition("=")[0])]
    return f"{before}?{'&'.join(parts)}" if options else uri


def _is_passed_on(name: str) -> bool:
    return name.lower() in _KNOWN_OPTIONS and name.lower() not in _OF_THE_READER


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
    return parse_qsl(uri.partition("?")[2].replace(";", "&"), keep_blank_values=True)
