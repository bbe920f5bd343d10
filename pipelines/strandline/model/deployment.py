"""Identity of the MongoDB deployment that a lake belongs to, as far as the user's privileges show it."""

from __future__ import annotations

from typing import Final

IDENTITY_PROPERTY: Final = "strandline.deployment"
"""Property of a bronze table: identity of the captured deployment."""
SHARDED: Final = "sharded"
"""Name of every sharded cluster. A cluster has an id and no name."""


def deployment_identity(name: str, number: str | None) -> str:
    """Return name and id of the deployment. *number* None: the user may not read the id (not part of ``read``)."""
    return name if number is None else f"{name}/{number}"


def replica_set_in(identity: str) -> str | None:
    """Return the replica set's name. None: a sharded cluster, or no identity."""
    name = identity.partition("/")[0]
    return None if name in ("", SHARDED) else name


def same_deployment(one: str, other: str) -> bool:
    """Return True if two identities may belong to one deployment. A missing id (a matter of rights) matches any id."""
    (name, _, number), (other_name, _, other_number) = one.partition("/"), other.partition("/")
    return name == other_name and (number == other_number or not number or not other_number)
