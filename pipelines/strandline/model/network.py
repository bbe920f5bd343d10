"""Network addresses. No I/O."""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(address: str) -> bool:
    """Return True if only processes of this machine reach *address*."""
    try:
        return address == "localhost" or ip_address(address.strip("[]")).is_loopback
    except ValueError:  # another name
        return False
