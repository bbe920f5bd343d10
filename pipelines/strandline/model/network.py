"""Network addresses, and the guard against requests that another site's page has sent. No I/O."""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(address: str) -> bool:
    """Return True if only processes of this machine reach *address*."""
    return address == "localhost" or (_is_address(address) and ip_address(address.strip("[]")).is_loopback)


def names_this_machine(host: str, address: str) -> bool:
    """Return True if the header *host* of a request names the machine of a server at *address*.

    A page of another site can send requests to this machine under that site's name, which an attacker has pointed here
    (DNS rebinding). The browser then lets the page read the answers. On the loopback interface only loopback names
    pass. Elsewhere an IP address passes, and a name without a dot, which no site has.
    """
    name = _without_port(host)
    if is_loopback(address):
        return is_loopback(name)
    return _is_address(name) or (name != "" and "." not in name)


def _is_address(name: str) -> bool:
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() and (":" not in name or name.endswith("]")) else host
