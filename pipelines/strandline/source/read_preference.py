"""Members of a replica set that a read preference allows, by their kind and tags. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pymongo.topology_description import TopologyDescription

PRIMARY, SECONDARY = "RSPrimary", "RSSecondary"

Address = tuple[str, int | None]


def fitting_members(topology: TopologyDescription, preference: Any) -> set[Address]:
    """Return the addresses of the members that *preference* allows now. Empty: no member fits.

    Latency and staleness do not count: they change all the time, and a cursor stays where it is.
    """
    servers: Mapping[Address, Any] = topology.server_descriptions()
    primary = {address for address, server in servers.items() if server.server_type_name == PRIMARY}
    secondaries = {address for address, server in servers.items() if server.server_type_name == SECONDARY}
    sets: Iterable[Mapping[str, Any]] = preference.tag_sets or ({},)

    def tagged(members: set[Address]) -> set[Address]:
        """Return the members of the first tag set that any of them has."""
        by_set = ({member for member in members if tags.items() <= servers[member].tags.items()} for tags in sets)
        return next((addresses for addresses in by_set if addresses), set())

    return {
        "primary": primary,
        "primaryPreferred": primary or tagged(secondaries),
        "secondary": tagged(secondaries),
        "secondaryPreferred": tagged(secondaries) or primary,
        "nearest": tagged(primary | secondaries),
    }[preference.mongos_mode]


def misplaced(topology: TopologyDescription, preference: Any, address: Address | None) -> str | None:
    """Return the kind of the member at *address* if a cursor there does not fit *preference*, and another member does.

    None: the cursor may stay.
    """
    server = None if address is None else topology.server_descriptions().get(address)
    if server is None or server.server_type_name not in (PRIMARY, SECONDARY):
        return None  # a mongos, a direct connection, or a member that the driver does not reach now
    fitting = fitting_members(topology, preference)
    if topology.topology_type_name == "Single" or not fitting or address in fitting:
        return None
    return "primary" if server.server_type_name == PRIMARY else "secondary"
