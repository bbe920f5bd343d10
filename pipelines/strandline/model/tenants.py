"""Tenant tables: collections of many databases in one silver table (decision 91). Pure.

A tenant is a collection of such a table. The table itself has the name of a namespace without a database.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from strandline.model.namespaces import Namespace
from strandline.model.regex_input import compiled, pattern_problem
from strandline.model.shape import Shape, can_be_column, fold_case

TENANT_KEY: Final = "concat(length(collection), ':', db, '.', collection, ':', coalesce(key, ''))"
"""SQL for the ``_key`` of a bronze row in a tenant table."""
_AFTER_LENGTH: Final = "locate(':', _key)"
_DATABASE: Final = f"substring_index(substring(_key, {_AFTER_LENGTH} + 1), '.', 1)"
_LENGTH: Final = "CAST(substring_index(_key, ':', 1) AS INT)"
TENANT_COLUMNS: Final = {
    "db": _DATABASE,
    "collection": f"substring(_key, {_AFTER_LENGTH} + length({_DATABASE}) + 2, {_LENGTH})",
    "key": f"substring(_key, {_AFTER_LENGTH} + length({_DATABASE}) + {_LENGTH} + 3)",
}
"""SQL for the database, the collection and the bare key of a row of a tenant table."""
_NO_FIELD: Final = "\0"
"""Beginning of the field's name behind a column of a group. No field of BSON has this character."""


def key_prefix(namespace: Namespace) -> str:
    """Return the text with which the keys of a tenant begin: ``6:shop.orders:``. No other tenant's keys do.

    A database's name holds no dot, and the length says where the collection's name ends.
    """
    return f"{len(namespace.collection)}:{namespace}:"


def tenant_of(key: str) -> Namespace:
    """Return the tenant of a row, by its ``_key``."""
    length, _, rest = key.partition(":")
    database, _, rest = rest.partition(".")
    return Namespace(database, rest[: int(length)])


def bare_key(key: str) -> str:
    """Return the key that the document has in bronze."""
    return key[len(key_prefix(tenant_of(key))) :]


def group_columns(pattern: str) -> dict[str, Shape]:
    """Return the columns of the named groups of a tenant table's *pattern*."""
    return {name: Shape("string", source=_NO_FIELD + name, pattern=pattern) for name in compiled(pattern).groupindex}


def group_values(pattern: str, group: str, keys: Iterable[str]) -> Iterator[str | None]:
    """Yield the text that a named group of *pattern* has for each key. None: the group took no part in the match."""
    values: dict[Namespace, str | None] = {}
    for key in keys:
        tenant = tenant_of(key)
        if tenant not in values:
            match = compiled(pattern).fullmatch(str(tenant))
            values[tenant] = None if match is None else match[group]
        yield values[tenant]


def without_groups(shape: Shape) -> Shape:
    """Return the columns of *shape* that a document has."""
    return Shape("struct", fields={name: inner for name, inner in shape.fields.items() if inner.pattern is None})


def table_problem(pattern: str) -> str | None:
    """Return the reason why *pattern* makes no tenant table. None: it does."""
    if (problem := pattern_problem(pattern)) is not None:
        return problem
    groups = compiled(pattern).groupindex
    if compiled(pattern).groups > len(groups):
        return "has a group without a name: write (?P<name>…) for a column, (?:…) for none"
    if wrong := [name for name in groups if name == "_id" or not can_be_column(name, top=True)]:
        return f"has the group {wrong[0]}, which is a column of every table"
    if len(set(map(fold_case, groups))) < len(groups):
        return "has groups that differ in case alone"
    return None
