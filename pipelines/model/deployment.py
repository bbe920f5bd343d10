"""Which MongoDB deployment a lake belongs to, as far as its user may ask."""

from __future__ import annotations

from typing import Final

IDENTITY_PROPERTY: Final = "strandline.deployment"
"""Property of a bronze table: identity of the deployment that it was captured from."""
SHARDED: Final = "sharded"
"""Name of every sharded cluster: it has none of its own."""


def deployment_identity(name: str, number: str | None) -> str:
    """The replica set's name, and its id where the user may read that (a privilege beyond ``read``)."""
    return name if number is None else f"{name}/{number}"


def replica_set_in(identity: str) -> str | None:
    """The replica set's name. None: a sharded cluster, or no identity."""
    name = identity.partition("/")[0]
    return None if name in ("", SHARDED) else name


def same_deployment(one: str, other: str) -> bool:
    """Whether two identities can be of one deployment: a user who was given more rights, or fewer, is no other deployment."""
    (name, _, number), (other_name, _, other_number) = one.partition("/"), other.partition("/")
    return name == other_name and (number == other_number or not number or not other_number)
