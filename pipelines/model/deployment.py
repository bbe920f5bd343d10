"""Which MongoDB deployment a lake belongs to, as far as its user may ask."""

from __future__ import annotations


def deployment_identity(name: str, number: str | None) -> str:
    """The replica set's name, and its id where the user may read that (a privilege beyond ``read``)."""
    return name if number is None else f"{name}/{number}"


def same_deployment(one: str, other: str) -> bool:
    """Whether two identities can be of one deployment: a user who was given more rights, or fewer, is no other deployment."""
    (name, _, number), (other_name, _, other_number) = one.partition("/"), other.partition("/")
    return name == other_name and (number == other_number or not number or not other_number)
