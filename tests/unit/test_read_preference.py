"""Which members fit a read preference, and when an open cursor is at the wrong one."""

from __future__ import annotations

from typing import Any

import pytest
from bson import ObjectId
from pymongo import read_preferences as modes
from pymongo.hello import Hello
from pymongo.server_description import ServerDescription
from pymongo.topology_description import TOPOLOGY_TYPE, TopologyDescription

from strandline.source.read_preference import fitting_members, misplaced

A, B, C = ("a", 1), ("b", 1), ("c", 1)


def member(address: tuple[str, int], kind: str, **tags: str) -> ServerDescription:
    if kind == "down":
        return ServerDescription(address)
    hosts = {"setName": "r", "hosts": ["a:1", "b:1", "c:1"], "me": f"{address[0]}:1", "maxWireVersion": 17}
    state: dict[str, Any] = {
        "primary": {"isWritablePrimary": True, "electionId": ObjectId()},
        "secondary": {"secondary": True},
    }.get(kind, {})
    return ServerDescription(address, Hello({"ok": 1, "tags": tags, **hosts, **state}))


def topology(*members: ServerDescription) -> TopologyDescription:
    kind = TOPOLOGY_TYPE.ReplicaSetWithPrimary
    return TopologyDescription(kind, {each.address: each for each in members}, "r", None, None, None)


NY = [{"dc": "ny"}]
ALL = topology(member(A, "primary", dc="ny"), member(B, "secondary", dc="ny"), member(C, "secondary", dc="sf"))
NO_SECONDARY = topology(member(A, "primary"), member(B, "down"), member(C, "recovering"))


@pytest.mark.parametrize(
    ("preference", "expected"),
    [
        (modes.Primary(), {A}),
        (modes.PrimaryPreferred(), {A}),
        (modes.Secondary(), {B, C}),
        (modes.Secondary(tag_sets=NY), {B}),
        (modes.Secondary(tag_sets=[{"dc": "tokyo"}]), set()),
        (modes.Secondary(tag_sets=[{"dc": "tokyo"}, {"dc": "sf"}, {}]), {C}),
        (modes.SecondaryPreferred(), {B, C}),
        (modes.SecondaryPreferred(tag_sets=[{"dc": "tokyo"}]), {A}),
        (modes.Nearest(), {A, B, C}),
        (modes.Nearest(tag_sets=NY), {A, B}),
    ],
)
def test_members_fit_by_mode_and_tags(preference: Any, expected: set[tuple[str, int]]) -> None:
    assert fitting_members(ALL, preference) == expected


@pytest.mark.parametrize(
    ("preference", "address", "members", "kind"),
    [
        (modes.Secondary(), A, ALL, "primary"),
        (modes.Secondary(), B, ALL, None),
        (modes.Secondary(), A, NO_SECONDARY, None),  # nowhere to go
        (modes.SecondaryPreferred(), A, ALL, "primary"),
        (modes.SecondaryPreferred(), A, NO_SECONDARY, None),
        (modes.Primary(), B, ALL, "secondary"),
        (modes.PrimaryPreferred(), B, ALL, "secondary"),
        (modes.Nearest(), B, ALL, None),
        (modes.Nearest(tag_sets=NY), C, ALL, "secondary"),
        (modes.Secondary(), B, NO_SECONDARY, None),  # the driver does not reach it now: the read itself fails
        (modes.Secondary(), ("gone", 1), ALL, None),
        (modes.Secondary(), None, ALL, None),
    ],
)
def test_a_cursor_is_misplaced_only_where_another_member_fits(
    preference: Any, address: tuple[str, int] | None, members: TopologyDescription, kind: str | None
) -> None:
    assert misplaced(members, preference, address) == kind
