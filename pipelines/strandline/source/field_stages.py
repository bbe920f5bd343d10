"""Stages and projections that remove excluded fields in the server. Pure.

They only save network traffic. `source.fields` removes every excluded field again, and reaches places that a stage
cannot: an array within an array, a child of an ``updatedFields`` value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from strandline.model.field_rules import FieldPolicy, FieldRule, wildcard_regex

Expression = dict[str, Any] | str


def exclusion_stages(policy: FieldPolicy, *, pre_image: bool) -> list[dict[str, Any]]:
    """Return one ``$set`` per pair of database and collection pattern with excluded fields.

    Events of other namespaces stay unchanged.

    Args:
        pre_image: The stream asks for ``fullDocumentBeforeChange``.
    """
    groups: dict[tuple[str, str], list[tuple[str, ...]]] = {}
    for rule in _excluded(policy):
        groups.setdefault((rule.database, rule.collection), []).append(rule.path)
    documents = ("fullDocument", *(("fullDocumentBeforeChange",) if pre_image else ()))
    stages = []
    for (database, collection), paths in groups.items():
        in_collection = [*_named("$ns.db", database), *_named("$ns.coll", collection)]
        content = {name: _where(in_collection, f"${name}", _without(f"${name}", paths)) for name in documents}
        content["updateDescription"] = _where(in_collection, "$updateDescription", _update_without(paths))
        stages.append({"$set": content})
    return stages


def exclusion_projection(policy: FieldPolicy, database: str, collection: str) -> dict[str, int]:
    """Return a projection for ``find`` that removes excluded fields; empty if there are none.

    A projection cannot name a field that begins with ``$``: such a field is removed after the read.
    """
    paths = {rule.path for rule in _excluded(policy) if rule.applies_to(database, collection)}
    nameable = {path for path in paths if not any(component.startswith("$") for component in path)}
    # A parent and its child in one projection are an error: path collision.
    shortest = [path for path in nameable if not any(path[:length] in nameable for length in range(1, len(path)))]
    return {".".join(path): 0 for path in sorted(shortest)}


def _excluded(policy: FieldPolicy) -> list[FieldRule]:
    return [rule for rule in policy.rules if rule.action == "exclude"]


def _named(field: str, pattern: str) -> list[Expression]:
    if pattern == "*":
        return []
    if "*" in pattern:
        return [{"$regexMatch": {"input": field, "regex": f"(?s)^{wildcard_regex(pattern)}\\z"}}]
    return [{"$eq": [field, {"$literal": pattern}]}]


def _where(conditions: Sequence[Expression], field: str, then: Expression) -> Expression:
    """Apply *then* to documents of the namespace only; null and a missing field stay as they are."""
    return {"$cond": [{"$and": [*conditions, _is_document(field)]}, then, field]}


def _is_document(expression: str) -> Expression:
    return {"$eq": [{"$type": expression}, "object"]}


def _without(document: Expression, paths: Sequence[tuple[str, ...]]) -> Expression:
    for path in paths:
        document = _stripped(document, path, 0)
    return document


def _stripped(document: Expression, path: Sequence[str], depth: int) -> Expression:
    """Return an expression for *document* without *path*. It looks into documents and arrays on the path."""
    name = {"$literal": path[0]}
    if len(path) == 1:
        return {"$unsetField": {"field": name, "input": document}}
    child, element, outer = f"$$child{depth}", f"$$element{depth}", f"$$document{depth}"
    stripped_element = {"$cond": [_is_document(element), _stripped(element, path[1:], depth + 1), element]}
    branches = [
        {"case": _is_document(child), "then": _stripped(child, path[1:], depth + 1)},
        {"case": {"$isArray": [child]}, "then": {"$map": {"input": child, "as": element[2:], "in": stripped_element}}},
    ]
    value = {
        "$let": {
            "vars": {child[2:]: {"$getField": {"field": name, "input": outer}}},
            "in": {"$switch": {"branches": branches, "default": child}},
        }
    }
    return {
        "$let": {"vars": {outer[2:]: document}, "in": {"$setField": {"field": name, "input": outer, "value": value}}}
    }


def _update_without(paths: Sequence[tuple[str, ...]]) -> Expression:
    at_or_below = "|".join(_numbered(path) for path in paths)

    def is_outside(path: str) -> Expression:
        return {"$not": [{"$regexMatch": {"input": path, "regex": f"^(?:{at_or_below})(?:\\.|\\z)"}}]}

    def filtered(items: Expression, path: str) -> Expression:
        return {"$filter": {"input": items, "as": "item", "cond": is_outside(path)}}

    description = "$updateDescription"
    fields = filtered({"$objectToArray": f"{description}.updatedFields"}, "$$item.k")
    content = {
        "updatedFields": {"$arrayToObject": fields},
        "removedFields": filtered(f"{description}.removedFields", "$$item"),
        "truncatedArrays": filtered(f"{description}.truncatedArrays", "$$item.field"),
    }
    return {"$mergeObjects": [description, content]}


def _numbered(path: Sequence[str]) -> str:
    """Return a regular expression for a path in an update: with or without array indices."""
    return r"(?:\.[0-9]+)*\.".join(re.escape(component) for component in path)
